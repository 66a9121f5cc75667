"""`make bench-long`: writes benchmarks/results/long-DATE.md. With `--short` long-short-DATE.md, at fewer lengths."""

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.alternating import KEEP_MEMORY, machine
from benchmarks.environments import python_of
from benchmarks.long.ours import OURS
from benchmarks.long.peers import PEERS
from benchmarks.long.report import Points, page

THREADS = 2
LENGTHS = [512 * 2**n for n in range(8)]
SHORT = [512, 4096, 16384, 65536]
HEADLINE = ["exact", "window", "window, without kernels", "peer:local-attention"]
BIASES = ["exact", "exact with a learned bias", "T5 bias", "T5 bias, without kernels", "Shaw"]
MOST_SECONDS, MOST_BYTES = 60.0, 6e9


def main() -> None:
    """Run everyone at every length, each in a process of its own, and write the page."""
    short = "--short" in sys.argv
    names = [name for name in OURS if name not in BIASES[1:]] + [f"peer:{name}" for name in PEERS]
    points: Points = {}
    for length in SHORT if short else LENGTHS:
        for name in names:
            if _is_feasible(points, name, length):
                _measure(points, name, length)
    for length in (512, 2048) if short else (512, 1024, 2048, 4096):
        for name in BIASES:
            _measure(points, name, length)
    rounds = 3 if short else 5
    headline: Points = {}
    for _ in range(rounds):
        for name in HEADLINE:
            _measure(headline, name, 16384)
        for name in BIASES:
            _measure(headline, name, 2048)
    today = datetime.date.today().isoformat()
    command = "python -m benchmarks.long --short" if short else "make bench-long"
    text = page(points, headline, command, today, f"{machine()}; {THREADS} threads")
    path = Path(__file__).parent.parent / "results" / f"{'long-short' if short else 'long'}-{today}.md"
    path.write_text(text)
    print(text)


def _is_feasible(points: Points, name: str, length: int) -> bool:
    """Whether a point is expected within the time and the memory that there is, by the two before it."""
    known = sorted(at for other, at in points if other == name)
    if len(known) < 2:
        return True
    before, last = (points[name, at][-1] for at in known[-2:])
    is_quadratic = last["seconds"] / before["seconds"] > 0.7 * (known[-1] / known[-2]) ** 2
    growth = (length / known[-1]) ** (2 if is_quadratic else 1)
    memory = last["memory"] + (last["memory"] - before["memory"]) * growth
    return last["seconds"] * growth <= MOST_SECONDS and memory <= MOST_BYTES


def _measure(points: Points, name: str, length: int) -> None:
    python = python_of("long") if name.startswith("peer:") else sys.executable
    repeats = 6 if length <= 4096 else 2 if name == "exact" else 4
    result = subprocess.run(
        [python, "-m", "benchmarks.long.point", name, str(length), str(repeats)],
        env={**os.environ, **KEEP_MEMORY, "OMP_NUM_THREADS": str(THREADS)},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise SystemExit(f"{name} failed at {length}:\n{result.stderr}")
    found = json.loads(result.stdout.splitlines()[-1])
    points.setdefault((name, length), []).append(found)
    print(f"{name:28} {length:6} {found['seconds']:8.3f} s {found['memory'] / 1e6:8.0f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()
