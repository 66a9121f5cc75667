"""`make bench-refactor OLD=CHECKOUT`: the same workloads before and after, alternating, in fresh processes."""

import argparse
import json
import os
import statistics
import subprocess
import sys
from datetime import date
from pathlib import Path

from benchmarks.refactor.workload import WORKLOADS

ROOT = Path(__file__).parents[2]


def measured(checkout: Path, workload: str) -> float:
    """Return the figure of a workload with the package of a checkout."""
    environment = {**os.environ, "PYTHONPATH": f"{checkout / 'src'}"}
    command = [sys.executable, str(ROOT / "benchmarks" / "refactor" / "workload.py"), workload]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{workload} failed in {checkout}:\n{done.stderr}")
    return float(json.loads(done.stdout.splitlines()[-1])["value"])


def main() -> None:
    """Measure, and write a page of results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("old", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    lines = [
        "# Before and after the redesign",
        "",
        f"`make bench-refactor OLD=CHECKOUT`, {date.today()}: each workload in a fresh process, old and new in turn,",
        f"{arguments.rounds} rounds; the ratio is new to old within a round, its median and its range over the rounds.",
        "",
        "| workload | old, a second | new, a second | ratio | lowest | highest |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    print("\n".join(lines), flush=True)
    for name in WORKLOADS:
        if arguments.only not in name:
            continue
        pairs = []
        for number in range(arguments.rounds):
            order = (arguments.old, ROOT) if number % 2 == 0 else (ROOT, arguments.old)
            found = {checkout: measured(checkout, name) for checkout in order}
            pairs.append((found[arguments.old], found[ROOT]))
        ratios = [new / old for old, new in pairs]
        old, new = (statistics.median(column) for column in zip(*pairs, strict=True))
        spread = f"{statistics.median(ratios):.3f} | {min(ratios):.3f} | {max(ratios):.3f}"
        row = f"| {name} | {old:,.1f} | {new:,.1f} | {spread} |"
        lines.append(row)
        print(row, flush=True)
    if not arguments.only:
        page = ROOT / "benchmarks" / "results" / f"refactor-{date.today()}.md"
        page.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
