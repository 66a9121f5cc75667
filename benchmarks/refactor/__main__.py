"""`make bench-refactor OLD=CHECKOUT`: the same workloads before and after, alternating.

What is measured is added to `build/refactor.json`, so that it may be measured in parts (`--only`); once every workload
is there, a page of results is written.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import IO

from benchmarks.alternating import machine
from benchmarks.refactor.outputs import Outputs, differences
from benchmarks.refactor.workload import WORKLOADS

ROOT = Path(__file__).parents[2]
PARTS = ROOT / "build" / "refactor.json"
Pairs = list[tuple[float, float]]
"""What the old and the new checkout do in a second, by rounds."""


def environment_of(checkout: Path) -> dict[str, str]:
    """Return the environment of a process that uses the package of a checkout, and these benchmarks."""
    return {**os.environ, "PYTHONPATH": f"{checkout / 'src'}:{ROOT}"}


class Worker:
    """A process that measures a workload with the package of a checkout."""

    def __init__(self, checkout: Path, workload: str, old: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "benchmarks" / "refactor" / "workload.py"), workload, str(old)],
            env=environment_of(checkout),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin: IO[str] = self._process.stdin
        self._stdout: IO[str] = self._process.stdout
        if self._stdout.readline().strip() != "ready":
            raise SystemExit(f"{workload} did not start in {checkout}")

    def measure(self) -> float:
        """Measure once."""
        self._stdin.write("\n")
        self._stdin.flush()
        return float(self._stdout.readline())

    def stop(self) -> None:
        """End the process."""
        self._stdin.close()
        self._process.wait()


def measured(old: Path, workload: str, processes: int, rounds: int) -> Pairs:
    """Measure with so many fresh processes of each checkout, one after the other, so many rounds each."""
    pairs: Pairs = []
    for _ in range(processes):
        workers = [Worker(checkout, workload, old) for checkout in (old, ROOT)]
        for number in range(rounds):
            found = [0.0, 0.0]
            for at in (0, 1) if number % 2 == 0 else (1, 0):
                found[at] = workers[at].measure()
            pairs.append((found[0], found[1]))
        for worker in workers:
            worker.stop()
    return pairs


def compared(old: Path) -> str:
    """Compare what both checkouts compute; return the results as Markdown."""
    found: list[Outputs] = []
    for checkout in (old, ROOT):
        command = [sys.executable, "-m", "benchmarks.refactor.outputs", str(old)]
        made = subprocess.run(
            command, env=environment_of(checkout), cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
        )
        found.append(Outputs(*json.loads(made.stdout.splitlines()[-1])))
    return differences(*found)


def page(parts: dict[str, Pairs], same: str) -> str:
    """Return the results as Markdown."""
    lines = [
        "# Before and after the redesign",
        "",
        f"`make bench-refactor OLD=CHECKOUT`, {date.today()}. {machine()}. Old and new in turn, in new processes after",
        "every third round; the ratio is new to old within a round, its median and its range over the rounds. Training",
        "in target tokens a second, decoding in sentences a second, with the model of the old checkout.",
        "",
        "| workload | rounds | old, a second | new, a second | ratio | lowest | highest |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(row(name, parts[name]) for name in WORKLOADS if name in parts),
        "",
        same,
    ]
    return "\n".join(lines) + "\n"


def row(name: str, pairs: Pairs) -> str:
    """Return a line of the table."""
    ratios = [new / old for old, new in pairs]
    old, new = (statistics.median(column) for column in zip(*pairs, strict=True))
    spread = f"{statistics.median(ratios):.3f} | {min(ratios):.3f} | {max(ratios):.3f}"
    return f"| {name} | {len(pairs)} | {old:,.1f} | {new:,.1f} | {spread} |"


def main() -> None:
    """Measure, and write a page of results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("old", type=Path)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3, help="of each process")
    parser.add_argument("--only", default="", help="workloads with this in their name, or `outputs`")
    arguments = parser.parse_args()
    parts: dict[str, Pairs] = json.loads(PARTS.read_text()) if PARTS.exists() else {}
    for name in WORKLOADS:
        if arguments.only not in name:
            continue
        parts[name] = measured(arguments.old, name, arguments.processes, arguments.rounds)
        print(row(name, parts[name]), flush=True)
        PARTS.parent.mkdir(exist_ok=True)
        PARTS.write_text(json.dumps(parts))
    same = "" if arguments.only not in "outputs" else compared(arguments.old)
    print(same)
    if parts.keys() >= WORKLOADS.keys() and same:
        results = ROOT / "benchmarks" / "results" / f"refactor-{date.today()}.md"
        results.write_text(page(parts, same), encoding="utf-8")


if __name__ == "__main__":
    main()
