"""Training and one sentence, idle and beside one busy loop: `make bench-busy`.

Processes wait until they are told to compute, one after the other and in turning order, so that a slow minute of the
machine slows all of them: one waits for work as the command line has it, one as torch has it by default, and each again
without kernels. After every third round there are new processes: how fast a process is depends on where its memory is.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import typer

MEASURES = ("train", "sentence")
KINDS = {
    "as the command line": {"adaptive": True, "kernels": True},
    "as torch by default": {"adaptive": False, "kernels": True},
    "without kernels": {"adaptive": True, "kernels": False},
    "without kernels, as torch by default": {"adaptive": False, "kernels": False},
}
_ROUNDS = 3  # of a process
Found = dict[tuple[str, bool], list[float]]
"""Seconds of a repetition, by measure and by whether another process was busy."""


class Worker:
    """A process that measures."""

    def __init__(self, found: Found, *, adaptive: bool, kernels: bool) -> None:
        self._found = found
        environment = {**os.environ, **({} if kernels else {"REGARD_KERNELS": "off"})}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.busy.worker", *(["--adaptive"] if adaptive else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin: IO[str] = self._process.stdin
        self._stdout: IO[str] = self._process.stdout
        if self._stdout.readline().strip() != "ready":
            raise SystemExit("a process did not start")

    def measure(self, name: str, seconds: float, *, busy: bool) -> None:
        """Measure once."""
        self._stdin.write(f"{name} {seconds}\n")
        self._stdin.flush()
        self._found.setdefault((name, busy), []).append(float(self._stdout.readline()))

    def stop(self) -> None:
        """End the process."""
        self._stdin.close()
        self._process.wait()


@contextmanager
def busy_loop(wanted: bool) -> Iterator[None]:
    """Have another process compute on one core meanwhile."""
    if not wanted:
        yield
        return
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    time.sleep(0.3)
    try:
        yield
    finally:
        other.kill()
        other.wait()


def main(
    rounds: int = typer.Option(9, help="Rounds."),
    seconds: float = typer.Option(3.0, help="Of each measure in a round."),
) -> None:
    """Measure, and print a table of medians in milliseconds."""
    found: dict[str, Found] = {name: {} for name in KINDS}
    for first in range(0, rounds, _ROUNDS):
        workers = [Worker(found[name], **kind) for name, kind in KINDS.items()]
        for number in range(first, min(rounds, first + _ROUNDS)):
            turn = number % len(workers)
            for worker in workers[turn:] + workers[:turn]:
                for name in MEASURES:
                    for busy in (False, True):
                        with busy_loop(busy):
                            worker.measure(name, seconds, busy=busy)
            print(f"round {number + 1}/{rounds}", file=sys.stderr)
        for worker in workers:
            worker.stop()
    print(f"{os.cpu_count()} cores; medians of {rounds} rounds, ms\n")
    print("| threads wait | measure | idle | beside a busy loop | times as long | idle cost |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    names = list(KINDS)
    for index, kind_name in enumerate(names):
        mine, default = found[kind_name], found[names[index // 2 * 2 + 1]]
        for name in MEASURES:
            idle, beside = (statistics.median(mine[name, busy]) for busy in (False, True))
            ratios = (one / other - 1 for one, other in zip(mine[name, False], default[name, False], strict=True))
            numbers = (
                f"{1000 * idle:.1f} | {1000 * beside:.1f} | {beside / idle:.1f} | {statistics.median(ratios):+.1%}"
            )
            print(f"| {kind_name} | {name} | {numbers} |")


if __name__ == "__main__":
    typer.run(main)
