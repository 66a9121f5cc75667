"""What every contestant does: the same sources, as token numbers, to targets; all at once, then one by one."""

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Rows = list[list[int]]
Translate = Callable[[Rows], Rows]

PAD, START, END = 0, 1, 2
ENOUGH = 4.0  # seconds of work to measure


@dataclass(frozen=True)
class Job:
    """What is to be done, and with what."""

    model: str
    """A model directory of regard's."""
    exported: str
    """Where the same is for CTranslate2, by the kind of its weights."""
    sources: Rows
    """With their tags and their ends."""
    beam: int
    one_by_one: int
    """How many of them to translate again, alone."""

    @property
    def longest(self) -> int:
        """How many tokens any target may have."""
        return 2 * max(map(len, self.sources)) + 10


def run(prepare: Callable[[Job, list[str]], Translate]) -> None:
    """Read a job, do it, write the targets to a file and the seconds to standard output."""
    path, output, *variant = sys.argv[1:]
    job = Job(**json.loads(Path(path).read_text(encoding="utf-8")))
    translate = prepare(job, variant)
    translate(job.sources[:: max(1, len(job.sources) // 40)])  # once to warm up
    times: list[float] = []
    while sum(times) < ENOUGH and len(times) < 5:  # what takes a second is at the mercy of whatever else happens in it
        began = time.perf_counter()
        targets = translate(job.sources)
        times.append(time.perf_counter() - began)
    result: dict[str, Any] = {"seconds": statistics.median(times)}
    result["tokens"] = sum(len(target) + 1 for target in targets)
    times = []
    for source in job.sources[: job.one_by_one]:
        began = time.perf_counter()
        translate([source])
        times.append(time.perf_counter() - began)
    if times:
        result["alone"] = statistics.median(times)
    Path(output).write_text(json.dumps(targets), encoding="utf-8")
    print(json.dumps(result))


def in_batches(sources: Rows, size: int, translate: Translate) -> Rows:
    """Translate batches of sources of about the same length."""
    order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
    found: dict[int, list[int]] = {}
    for first in range(0, len(order), size):
        chosen = order[first : first + size]
        found.update(zip(chosen, translate([sources[index] for index in chosen]), strict=True))
    return [found[index] for index in range(len(sources))]


def up_to_the_end(tokens: list[int]) -> list[int]:
    """Cut what a fixed number of columns has after the end."""
    return tokens[: tokens.index(END)] if END in tokens else [token for token in tokens if token != PAD]
