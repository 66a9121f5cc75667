"""Many texts, in chunks and in order, by this process or by several of one thread each."""

import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from regard.errors import RegardError
from regard.memory import keep_memory
from regard.pipeline.linear import Precision
from regard.pipeline.pipeline import Pipeline
from regard.pipeline.translation import Translation

Chunk = list[str]


@dataclass(frozen=True)
class Work:
    """What is done to each chunk: the model, and the options of `Pipeline.translate`."""

    model: Path
    precision: Precision
    options: dict[str, Any]


def translated(
    pipeline: Pipeline, work: Work, chunks: Iterable[Chunk], *, workers: int = 1
) -> Iterator[list[Translation]]:
    """Give the translations of each chunk, in order."""
    if workers == 1:
        for chunk in chunks:
            yield pipeline.translate(chunk, **work.options)
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), _start, (work,)) as pool:
        yield from _in_order(pool.submit, chunks, ahead=2 * workers)


def _in_order(
    submit: Callable[..., "Future[list[Translation]]"], chunks: Iterable[Chunk], ahead: int
) -> Iterator[list[Translation]]:
    waiting: deque[Future[list[Translation]]] = deque()
    try:
        for chunk in chunks:
            waiting.append(submit(_translate, chunk))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise RegardError("a worker process has ended, perhaps for want of memory; try with fewer --workers") from None
    finally:
        for future in waiting:
            future.cancel()


_own: tuple[Pipeline, Work] | None = None  # of a worker process, which has one pipeline for its whole life


def _start(work: Work) -> None:
    global _own
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asked for the work says when it ends
    keep_memory()
    torch.set_num_threads(1)
    _own = Pipeline.load(work.model, work.precision), work


def _translate(chunk: Chunk) -> list[Translation]:
    assert _own is not None
    pipeline, work = _own
    return pipeline.translate(chunk, **work.options)
