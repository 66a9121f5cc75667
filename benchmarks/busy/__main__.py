"""Training and one sentence, idle and beside one busy loop: `make bench-busy`.

Processes wait until they are told to compute, one after the other and in turning order, so that a slow minute of the
machine slows all of them: one waits for work as the command line has it, one as torch has it by default, and each again
without kernels.
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


class Worker:
    """A process that measures."""

    def __init__(self, name: str, *, passive: bool, kernels: bool) -> None:
        self.name = name
        self.found: dict[tuple[str, bool], list[float]] = {}
        environment = {**os.environ, **({} if kernels else {"REGARD_KERNELS": "off"})}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.busy.worker", *(["--passive"] if passive else [])],
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
            raise SystemExit(f"{name} did not start")

    def measure(self, name: str, seconds: float, *, busy: bool) -> None:
        """Measure once."""
        self._stdin.write(f"{name} {seconds}\n")
        self._stdin.flush()
        self.found.setdefault((name, busy), []).append(float(self._stdout.readline()))

    def median(self, name: str, *, busy: bool) -> float:
        """Return the median seconds of a repetition."""
        return statistics.median(self.found[name, busy])

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
    workers = [
        Worker("as the command line", passive=True, kernels=True),
        Worker("as torch by default", passive=False, kernels=True),
        Worker("without kernels", passive=True, kernels=False),
        Worker("without kernels, as torch by default", passive=False, kernels=False),
    ]
    for number in range(rounds):
        turn = number % len(workers)
        for worker in workers[turn:] + workers[:turn]:
            for name in MEASURES:
                for busy in (False, True):
                    with busy_loop(busy):
                        worker.measure(name, seconds, busy=busy)
        print(f"round {number + 1}/{rounds}", file=sys.stderr)
    print(f"{os.cpu_count()} cores; medians of {rounds} rounds, ms\n")
    print("| threads wait | measure | idle | beside a busy loop | times as long | idle cost |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for index, worker in enumerate(workers):
        default = workers[index // 2 * 2 + 1]
        for name in MEASURES:
            idle, busy_ = (worker.median(name, busy=busy) for busy in (False, True))
            cost = statistics.median(
                mine / theirs - 1
                for mine, theirs in zip(worker.found[name, False], default.found[name, False], strict=True)
            )
            numbers = f"{1000 * idle:.1f} | {1000 * busy_:.1f} | {busy_ / idle:.1f} | {cost:+.1%}"
            print(f"| {worker.name} | {name} | {numbers} |")
        worker.stop()


if __name__ == "__main__":
    typer.run(main)
