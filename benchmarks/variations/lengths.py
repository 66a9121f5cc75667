"""Length generalization: `python -m benchmarks.variations.lengths --out DIR`.

Sequences of random symbols are copied, with every kind of positions: trained up to length 40, tested up to 160.
"""

import argparse
import random
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks.variations.loop import END, FIRST, PAD, START, Pairs, Recipe, greedy, once, train

SYMBOLS, TRAINED, LENGTHS = 16, 40, (10, 20, 30, 40, 50, 60, 80, 100, 120, 140, 160)
KINDS: dict[str, dict[str, Any]] = {
    "sinusoidal": {},
    "sinusoidal, randomized": {"random_positions": 512},
    "learned": {"positions": "learned", "max_positions": 256},
    "none": {"positions": "none"},
    "Shaw": {"positions": "shaw"},
    "T5": {"positions": "t5"},
    "ALiBi": {"positions": "alibi"},
    "RoPE": {"positions": "rope"},
    "RoPE, randomized": {"positions": "rope", "random_positions": 512},
}


def sequences(count: int, lengths: tuple[int, int], seed: int) -> Pairs:
    """Return random sequences, each to be copied."""
    draw = random.Random(seed)
    rows = [[FIRST + draw.randrange(SYMBOLS) for _ in range(draw.randint(*lengths))] for _ in range(count)]
    return [(row, row) for row in rows]


def token_accuracy(model: regard.Transformer, pairs: Pairs) -> float:
    """Return the share of target tokens that are right at their place."""
    outputs = greedy(model, [source for source, _ in pairs], max(len(target) for _, target in pairs) + 1)
    right = sum(
        a == b for (_, target), output in zip(pairs, outputs, strict=True) for a, b in zip(target, output, strict=False)
    )
    return right / sum(len(target) for _, target in pairs)


def run(kind: str, steps: int, seed: int = 1) -> dict[str, Any]:
    """Train one model, and test it at every length."""
    torch.manual_seed(seed)
    shape = dict(d_model=64, num_heads=4, d_ff=256, encoder_layers=2, decoder_layers=2, dropout=0.0)
    config = regard.TransformerConfig(
        vocab_size=FIRST + SYMBOLS,
        pad_id=PAD,
        bos_id=START,
        eos_id=END,
        norm_placement="pre",
        **{**shape, **KINDS[kind]},
    )
    model = regard.Transformer(config)
    found = train(model, sequences(50_000, (1, TRAINED), seed), Recipe(steps=steps, batch=64, peak=2e-3, seed=seed))
    scores = {length: token_accuracy(model, sequences(64, (length, length), 1000 + length)) for length in LENGTHS}
    return {"kind": kind, "steps": steps, "accuracy": scores, **found}


def main() -> None:
    """Train what is not trained yet, and print the accuracies."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for kind in KINDS:
        if arguments.only and arguments.only != kind:
            continue
        name = kind.replace(", ", "-").lower()
        print(once(arguments.out / f"{name}.json", lambda k=kind: run(k, arguments.steps)), flush=True)


if __name__ == "__main__":
    main()
