"""Peers side by side: one driver alternates fresh processes, so that a slow minute of the machine slows all of them."""

import gc
import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import dataclass, field

# What `regard train` does for memory. glibc is told to keep what it has: without it, every large tensor is made of
# fresh pages. And Python's collector is told to leave alone what was there before the first step, by `settle`.
KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    "MALLOC_TOP_PAD_": "1000000000",
    "BENCH_SETTLED": "1",
}


def settle() -> None:
    """Do what `regard train` does before its first step, where a contestant is to have it."""
    if os.environ.get("BENCH_SETTLED") == "1":
        gc.collect()
        gc.freeze()


@dataclass
class Contestant:
    """A program that prints one JSON object of seconds a measure, and what it printed round by round."""

    name: str
    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    python: str = sys.executable
    rounds: list[dict[str, float]] = field(default_factory=list)

    def median(self, measure: str) -> float:
        """The median over the rounds."""
        return statistics.median(row[measure] for row in self.rounds)

    def spread(self, measure: str) -> str:
        """The fastest and the slowest round."""
        values = [row[measure] for row in self.rounds]
        return f"{min(values):.3f}-{max(values):.3f}"


def alternate(contestants: list[Contestant], rounds: int, threads: int) -> None:
    """Run everyone once a round, each in a fresh process with its threads pinned, in turning order."""
    for number in range(rounds):
        turn = number % len(contestants)
        for contestant in contestants[turn:] + contestants[:turn]:
            environment = {**os.environ, "OMP_NUM_THREADS": str(threads), **contestant.environment}
            result = subprocess.run(
                [contestant.python, "-m", *contestant.arguments],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            if result.returncode != 0:
                raise SystemExit(f"{contestant.name} failed:\n{result.stderr}")
            contestant.rounds.append(json.loads(result.stdout.splitlines()[-1]))
            print(f"round {number + 1}/{rounds}  {contestant.name:32} {contestant.rounds[-1]}", file=sys.stderr)


def ratios(contestant: Contestant, peer: Contestant, measure: str) -> tuple[float, float, float]:
    """How many times as fast as the peer: the median of the rounds' ratios, the smallest and the largest."""
    paired = [peer.rounds[i][measure] / row[measure] for i, row in enumerate(contestant.rounds)]
    return statistics.median(paired), min(paired), max(paired)


def machine() -> str:
    """Return the hardware and the versions."""
    import torch
    import transformers

    from regard.training.environment import cpu_name

    return (
        f"{cpu_name()} with {torch.backends.cpu.get_cpu_capability()}, {os.cpu_count()} cores; "
        f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}"
    )
