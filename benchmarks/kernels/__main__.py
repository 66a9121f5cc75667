"""`make bench-kernels`: writes benchmarks/results/kernels-DATE.md.

Whole training steps and decoding jobs with all kernels, and with all but one, in turn in one process.
"""

import argparse
import datetime
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from benchmarks.training.with_regard import FAST, make_train_step  # first: it tells the allocator to keep its memory

# isort: split
import numpy as np
import torch
from torch import nn

import regard
from benchmarks.alternating import machine, settle
from benchmarks.kernels.switches import (
    DECODING,
    FLOAT_DECODING,
    INT8_TRAINING,
    SUBWORD_DROPOUT,
    TRAINING,
    Switch,
)
from benchmarks.refactor.workload import sentences
from benchmarks.training.measure import SIZES, make_batches
from regard.data import Tokenizer
from regard.training.examples import Cuts

ROOT = Path(__file__).parents[2]
Work = Callable[[], object]
Make = Callable[[Switch | None], Work]
"""Returns what is timed, with a kernel left out or with all."""


def training(size_name: str, settings: dict[str, str], **model: str) -> Make:
    """Time steps on one batch of the benchmark of training."""
    size = SIZES[size_name]
    train_step, step = make_train_step(size, settings, **model)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "batches.npz"
        make_batches(size, path)
        with np.load(path) as arrays:
            source, target = (torch.from_numpy(arrays[f"{side}0"]) for side in ("source", "target"))
    batch = source, target[:, :-1].contiguous(), target[:, 1:].contiguous()

    def make(switch: Switch | None) -> Work:
        def work() -> None:
            with nullcontext() if switch is None else switch(train_step.model):
                step(*batch)

        return work

    return make


def decoding(precision: str, beam: int, count: int, *, alone: bool = False) -> Make:
    """Time the decoding of sentences, all at once or one by one."""

    def make(switch: Switch | None) -> Work:
        nothing = nn.Module()
        with nullcontext() if switch is None else switch(nothing):
            pipeline = regard.load("de-en", precision=precision)  # type: ignore[call-overload]
        sources = [pipeline.encoded(text, "en") for text in sentences(count)]

        def work() -> None:
            with nullcontext() if switch is None else switch(nothing):
                for some in [[source] for source in sources] if alone else [sources]:
                    pipeline.decode(some, beam=beam)

        return work

    return make


def subword_dropout() -> Make:
    """Time a step of training with the cutting of its batch, which is done in the same process."""
    step = training("tiny", FAST)(None)
    lines = [text for text in sentences(2000) if 40 < len(text) < 90]
    tokenizer = Tokenizer.train(lines, vocab_size=8000)
    rows = [tokenizer.encode(line) for line in lines[:200]]

    def make(switch: Switch | None) -> Work:
        with nullcontext() if switch is None else switch(nn.Module()):
            cuts = Cuts.of(tokenizer, tokenizer, 0.1, seed=1)
        assert cuts is not None

        def work() -> None:
            for number, row in enumerate(rows):
                cuts.source.cut(row, epoch=0, example=number)
                cuts.target.cut(row, epoch=0, example=number)
            step()

        return work

    return make


WORKLOADS: dict[str, tuple[Callable[[], Make], dict[str, Switch]]] = {
    "training Tiny, float32": (lambda: training("tiny", {}), TRAINING),
    "training Tiny, int8 and sampled gradients": (lambda: training("tiny", FAST), INT8_TRAINING),
    "training Tiny with norms first, int8 and sampled gradients": (
        lambda: training("tiny", FAST, norm_placement="pre"),
        INT8_TRAINING,
    ),
    "training base-like, float32": (lambda: training("base", {}), TRAINING),
    "training base-like, int8 and sampled gradients": (lambda: training("base", FAST), INT8_TRAINING),
    "training Tiny, int8, with subword dropout": (subword_dropout, SUBWORD_DROPOUT),
    "decoding, int8, beam 5": (lambda: decoding("int8", 5, 200), DECODING),
    "decoding, int8, greedy": (lambda: decoding("int8", 1, 400), DECODING),
    "decoding, int8, beam 5, one by one": (lambda: decoding("int8", 5, 40, alone=True), DECODING),
    "decoding, float32, beam 5": (lambda: decoding("float", 5, 100), FLOAT_DECODING),
}


def measured(name: str, rounds: int) -> dict[str, list[float]]:
    """Return by kernel how many times as long a workload takes without it, by rounds."""
    prepare, switches = WORKLOADS[name]
    make = prepare()
    whole = make(None)
    works = {kernel: make(switch) for kernel, switch in switches.items()}
    for work in (whole, whole, *works.values()):
        work()
    settle()
    found: dict[str, list[float]] = {kernel: [] for kernel in works}
    for number in range(rounds):
        for kernel, work in works.items():
            pair = [(whole, 0), (work, 1)] if number % 2 == 0 else [(work, 1), (whole, 0)]
            seconds = [0.0, 0.0]
            for job, at in pair:
                began = time.perf_counter()
                job()
                seconds[at] = time.perf_counter() - began
            found[kernel].append(seconds[1] / seconds[0])
    return found


def page(parts: dict[str, dict[str, list[float]]], threads: int) -> str:
    """Return the results as Markdown."""
    lines = [
        f"# What each kernel gives on a whole step, {datetime.date.today()}",
        "",
        f"`make bench-kernels` made this file. {machine()}; {threads} threads.",
        "",
        "Each workload with all kernels, and with all but one, in turn in one process: how many times as long it takes",
        "without the kernel, the median over the rounds and their range. The sizes are those of `make bench-training`;",
        "decoding is with the model in the package.",
        "",
        "| workload | without | times as long | lowest | highest | rounds |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for name, kernels in parts.items():
        for kernel, ratios in kernels.items():
            spread = f"{statistics.median(ratios):.3f} | {min(ratios):.3f} | {max(ratios):.3f} | {len(ratios)}"
            lines.append(f"| {name} | {kernel} | {spread} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and write a page of results once every workload is there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", default="", help="workloads with this in their name")
    arguments = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    state = ROOT / "build" / "kernels.json"
    state.parent.mkdir(exist_ok=True)
    parts: dict[str, dict[str, list[float]]] = json.loads(state.read_text()) if state.exists() else {}
    for name in WORKLOADS:
        if arguments.only in name:
            parts[name] = measured(name, arguments.rounds)
            state.write_text(json.dumps(parts))
            print(page({name: parts[name]}, threads).partition("| ---: |\n")[2], end="", flush=True)
    if parts.keys() >= WORKLOADS.keys():
        results = ROOT / "benchmarks" / "results" / f"kernels-{datetime.date.today()}.md"
        results.write_text(page({name: parts[name] for name in WORKLOADS}, threads), encoding="utf-8")


if __name__ == "__main__":
    main()
