"""The page of `make bench-long`."""

import math
import statistics

from benchmarks.long.settings import FEATURES, GLOBAL, LANDMARKS, WIDTH, WINDOW

Points = dict[tuple[str, int], list[dict[str, float]]]
"""Seconds and bytes, for each contestant and length, round by round."""


def page(points: Points, headline: Points, command: str, date: str, machine: str) -> str:
    """Return the page."""
    lines = [
        f"# Attention over long sequences, {date}",
        "",
        f"`{command}` made this file. {machine}.",
        "",
        "The attention operator alone, forward and backward, float32: 8 heads of 32, batch 1, not causal unless it",
        f"says so. A window of {WINDOW} keys to each side; Longformer with {GLOBAL} global tokens; BigBird with blocks",
        "of 64, one to each side, one global and 3 random ones; blocks: a band of 2 blocks of 128 to each side; the",
        f"Performer with {FEATURES} features, the Linformer with {WIDTH} mixtures, the Nyströmformer with {LANDMARKS}",
        "landmarks. The window and T5's bias are computed by a kernel, as `regard.accelerate` has it, and also by the",
        "plain layers.",
        "`exact` is `F.scaled_dot_product_attention`. Packages from PyPI, in italics, at the same settings, without",
        "projections. Each point is a process of its own; memory is the most that the process held, with torch (about",
        "250 MB). All are told to keep freed memory, as `regard train` does. The exponent is fitted from 4,096 on. An",
        "empty field would take more than 60 s or 6 GB.",
        "",
        "## Seconds",
        "",
        *_table(points, "seconds", with_exponent=True),
        "",
        "## Memory in MB",
        "",
        *_table(points, "memory", with_exponent=False),
        "",
        *_headline(headline),
    ]
    return "\n".join(lines) + "\n"


def exponent(points: Points, name: str, start: int = 4096) -> float | None:
    """Return the slope of log seconds over log length, by least squares; None with fewer than two lengths."""
    found = [
        (math.log(at), math.log(rounds[0]["seconds"]))
        for (who, at), rounds in points.items()
        if who == name and at >= start
    ]
    return None if len(found) < 2 else statistics.linear_regression(*zip(*found, strict=True)).slope


def _table(points: Points, measure: str, *, with_exponent: bool) -> list[str]:
    lengths = sorted({length for _, length in points})
    head = ["", *(f"{length:,}" for length in lengths), *(["exponent"] if with_exponent else [])]
    lines = ["| " + " | ".join(head) + " |", "| --- " + "| ---: " * (len(head) - 1) + "|"]
    for name in dict.fromkeys(name for name, _ in points):
        cells = [_cell(points.get((name, length)), measure) for length in lengths]
        if with_exponent:
            slope = exponent(points, name)
            cells.append("" if slope is None else f"{slope:.2f}")
        lines.append("| " + " | ".join([_shown(name), *cells]) + " |")
    return lines


def _cell(rounds: list[dict[str, float]] | None, measure: str) -> str:
    if rounds is None:
        return ""
    value = rounds[0][measure]
    return f"{value / 1e6:,.0f}" if measure == "memory" else f"{value:.3f}"


def _headline(headline: Points) -> list[str]:
    rounds = len(headline["exact", 16384])
    lines = [
        "## In turns",
        "",
        f"Fresh processes in turns, {rounds} rounds; medians of the rounds' ratios (smallest-largest).",
        "",
        "| | times |",
        "| --- | --- |",
    ]
    for text, one, other, length in (
        ("exact over the window, at 16,384", "exact", "window", 16384),
        ("*local-attention* over the window, at 16,384", "peer:local-attention", "window", 16384),
        ("*local-attention* over the window without kernels", "peer:local-attention", "window, without kernels", 16384),
        ("T5 bias over exact with a learned bias, at 2,048", "T5 bias", "exact with a learned bias", 2048),
        ("Shaw over exact with a learned bias, at 2,048", "Shaw", "exact with a learned bias", 2048),
        ("T5 bias over exact without bias, at 2,048", "T5 bias", "exact", 2048),
        ("T5 bias without kernels over exact without bias", "T5 bias, without kernels", "exact", 2048),
        ("Shaw over exact without bias, at 2,048", "Shaw", "exact", 2048),
    ):
        pairs = zip(headline[one, length], headline[other, length], strict=True)
        found = [first["seconds"] / second["seconds"] for first, second in pairs]
        lines.append(f"| {text} | {statistics.median(found):.2f} ({min(found):.2f}-{max(found):.2f}) |")
    return lines


def _shown(name: str) -> str:
    return f"*{name.removeprefix('peer:')}*" if name.startswith("peer:") else name
