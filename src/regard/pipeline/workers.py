"""Many texts, in chunks and in order, by this process or by several of one thread each."""

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import active_children, get_context, parent_process
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
    others = set(active_children())
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start, (work,))
    done = False
    try:
        yield from _in_order(pool, chunks, ahead=2 * workers)
        done = True
    except BrokenProcessPool:
        raise RegardError("a worker process has ended, perhaps for want of memory; try with fewer --workers") from None
    finally:
        if not done:  # what is under way is of no use any more
            for process in set(active_children()) - others:
                process.terminate()
        pool.shutdown(cancel_futures=True)


def _in_order(pool: ProcessPoolExecutor, chunks: Iterable[Chunk], ahead: int) -> Iterator[list[Translation]]:
    waiting: deque[Future[list[Translation]]] = deque()
    for chunk in chunks:
        # A worker is started by the first chunks; it is not to hear of an interrupt before it can ignore it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            waiting.append(pool.submit(_translate, chunk))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if len(waiting) >= ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


_own: tuple[Pipeline, Work] | None = None  # of a worker process, which has one pipeline for its whole life


def _start(work: Work) -> None:
    global _own
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asked for the work says when it ends
    threading.Thread(target=_end_with_parent, daemon=True).start()
    keep_memory()
    torch.set_num_threads(1)
    _own = Pipeline.load(work.model, work.precision), work


def _end_with_parent() -> None:
    """End when the process that asked for the work is gone, in whatever way: nobody else would ever say so."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _translate(chunk: Chunk) -> list[Translation]:
    assert _own is not None
    pipeline, work = _own
    return pipeline.translate(chunk, **work.options)
