"""What variations cost in decoding: `python -m benchmarks.variations.decoding`.

Models of the shape of the packaged one (6 + 2 layers, d_model 256, 8,000 tokens), with random weights and int8 kernels,
decode the same 96 sources with beam 5 to the same lengths. They take turns in one process; a ratio is to the sinusoidal
model of the same round.
"""

import argparse
import random
import statistics
import time
from datetime import date
from pathlib import Path
from typing import Any

import torch

import regard
from regard.decoding import Request, SearchSettings
from regard.inference.backends import choose_backend
from regard.inference.decode import decode_requests
from regard.training.environment import cpu_name

SHAPE: dict[str, Any] = dict(
    vocab_size=8000, d_model=256, num_heads=8, d_ff=1024, encoder_layers=6, decoder_layers=2, bos_id=1, eos_id=2
)
VARIATIONS: dict[str, dict[str, Any]] = {
    "sinusoidal": {},
    "RoPE": {"positions": "rope"},
    "ALiBi": {"positions": "alibi"},
    "T5": {"positions": "t5"},
    "window of 16": {"attention": {"pattern": {"kind": "window", "size": 16}}},
    "shared layers": {"sharing": "all"},
}


def main() -> None:
    """Measure, and write a page of results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    draw = random.Random(1)
    sources = [[draw.randrange(3, 8000) for _ in range(draw.randint(6, 20))] + [2] for _ in range(96)]
    requests = [Request(limit=len(source)) for source in sources]
    backends = {}
    for name, changes in VARIATIONS.items():
        torch.manual_seed(1)
        model = regard.Transformer(regard.TransformerConfig(**{**SHAPE, **changes})).eval()
        backends[name] = choose_backend(model, "int8")
    seconds: dict[str, list[float]] = {name: [] for name in backends}
    for number in range(arguments.rounds + 1):
        for name, backend in backends.items():
            began = time.perf_counter()
            decode_requests(backend, sources, requests, SearchSettings(beam=5), never=(2,))
            if number:  # the first round warms up
                seconds[name].append(time.perf_counter() - began)
    lines = [
        "# What variations cost in decoding",
        "",
        f"`python -m benchmarks.variations.decoding`, {date.today()}, {cpu_name()}, {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}.",
        "Models with the shape of the packaged one and random weights, int8 kernels, beam 5, 96 sources; they take",
        f"turns in one process, {arguments.rounds} rounds. The ratio is to the sinusoidal model of the same round.",
        "",
        "| variation | seconds | times the sinusoidal model's | lowest | highest | decoder |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, found in seconds.items():
        ratios = [a / b for a, b in zip(found, seconds["sinusoidal"], strict=True)]
        lines.append(
            f"| {name} | {statistics.median(found):.3f} | {statistics.median(ratios):.2f} | {min(ratios):.2f} "
            f"| {max(ratios):.2f} | {backends[name].name} |"
        )
    print("\n".join(lines))
    if arguments.results is not None:
        arguments.results.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
