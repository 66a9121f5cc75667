"""Where the time of decoding goes, by operation."""

from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

import regard


def where_time_goes(model: Path, sources: list[list[int]]) -> list[str]:
    """Give a table of the dearest operations of beam 5 on one thread."""
    torch.set_num_threads(1)
    lines = ["| operation | share of the time, floats | share of the time, int8 |", "| --- | --- | --- |"]
    shares: list[dict[str, float]] = []
    for precision in ("float", "int8"):
        pipeline = regard.load(model, precision=precision)
        pipeline.decode(sources[:20], beam=5)
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            pipeline.decode(sources, beam=5)
        times = {event.key: float(event.self_cpu_time_total) for event in seen.key_averages()}
        total = sum(times.values())
        shares.append({name: time / total for name, time in times.items()})
    names = sorted({*shares[0], *shares[1]}, key=lambda name: -sum(share.get(name, 0.0) for share in shares))
    for name in names[:16]:
        cells = " | ".join(f"{100 * share.get(name, 0.0):.1f} %" for share in shares)
        lines.append(f"| `{name}` | {cells} |")
    return [*lines, "", "Of what torch computes; the search's own bookkeeping in Python and numpy is not in it."]
