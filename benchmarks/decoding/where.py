"""Where the time of decoding goes, by what is done."""

import cProfile
import pstats
from pathlib import Path

import torch

import regard

_PARTS = {
    "sources read by the encoder": {("packed_decoder.py", "_read")},
    "the decoder's layers": {("packed_layers.py", "step"), ("kernel_layers.py", "step")},
    "the output projection": {("packed_decoder.py", "_logits")},
    "log-softmax": {("candidates.py", "log_probabilities")},
    "the best continuations": {("candidates.py", "best_continuations")},
    "memory made, moved and reordered": {
        ("beam_cache.py", name) for name in ("admit", "begin_step", "end_step", "keep", "reorder")
    },
}


def where_time_goes(model: Path, sources: list[list[int]]) -> list[str]:
    """Return a table of the parts of beam 5 on one thread."""
    torch.set_num_threads(1)
    shares = []
    for precision in ("float", "int8"):
        pipeline = regard.load(model, precision=precision)
        pipeline.decode(sources[:20], beam=5)
        profile = cProfile.Profile()
        profile.runcall(pipeline.decode, sources, beam=5)
        shares.append(_shares(pstats.Stats(profile)))
    lines = ["| | share of the time, floats | share of the time, int8 |", "| --- | --- | --- |"]
    for part in shares[0]:
        lines.append(f"| {part} | " + " | ".join(f"{100 * share[part]:.0f} %" for share in shares) + " |")
    return lines


def _shares(stats: pstats.Stats) -> dict[str, float]:
    times = stats.stats  # type: ignore[attr-defined]
    whole = max(cumulative for _, _, _, cumulative, _ in times.values())
    shares = {
        part: sum(row[3] for (file, _, name), row in times.items() if (Path(file).name, name) in functions) / whole
        for part, functions in _PARTS.items()
    }
    return {**shares, "the search's bookkeeping, and the rest": 1.0 - sum(shares.values())}
