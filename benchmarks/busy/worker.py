"""A process that trains a step or translates a sentence whenever it is told to, and prints how long it took."""

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext

from regard.memory import keep_memory
from regard.spinning import adaptive_spinning

keep_memory()

import torch  # noqa: E402

import regard  # noqa: E402
from benchmarks.training.measure import SIZES  # noqa: E402
from benchmarks.training.with_regard import make_step  # noqa: E402

_SENTENCE = "Ein Mann in einem blauen Hemd steht auf einer Leiter und putzt ein Fenster."


def training() -> Callable[[], object]:
    """Return a step of training of Transformer-Tiny in float32."""
    size = SIZES["tiny"]
    step = make_step(size)
    source, target = torch.randint(4, size.vocab, (2, 200, 20))
    return lambda: step(source, target[:, :-1].contiguous(), target[:, 1:].contiguous())


def translating() -> Callable[[], object]:
    """Return the translation of one sentence."""
    pipeline = regard.load("de-en")
    return lambda: pipeline.translate(_SENTENCE, to="en")


def main() -> None:
    """Read a name of a measure and seconds from each line; print the mean seconds of a repetition."""
    works = {"train": training(), "sentence": translating()}
    for work in works.values():
        for _ in range(3):
            work()
    print("ready", flush=True)
    with adaptive_spinning() if "--adaptive" in sys.argv else nullcontext():
        for line in sys.stdin:
            name, seconds = line.split()
            began, count = time.perf_counter(), 0
            while count == 0 or time.perf_counter() - began < float(seconds):
                works[name]()
                count += 1
            print((time.perf_counter() - began) / count, flush=True)


if __name__ == "__main__":
    main()
