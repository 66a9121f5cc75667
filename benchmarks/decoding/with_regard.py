"""regard: one process of several threads, or several of one, as `regard translate` runs them."""

import atexit
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

import regard
from benchmarks.decoding.job import Job, Rows, Translate, run
from regard.memory import keep_memory

keep_memory()  # as the command does
_own: regard.Pipeline | None = None


def _start(model: str, precision: str) -> None:
    global _own
    torch.set_num_threads(1)
    _own = regard.load(model, precision=precision)  # type: ignore[arg-type]


def _translate(sources: Rows, beam: int) -> Rows:
    assert _own is not None
    return [hypotheses[0].tokens for hypotheses in _own.decode(sources, beam=beam)]


def prepare(job: Job, variant: list[str]) -> Translate:
    """`PRECISION PROCESSES THREADS`."""
    precision, processes, threads = variant[0], int(variant[1]), int(variant[2])
    if processes == 1:
        torch.set_num_threads(threads)
        pipeline = regard.load(job.model, precision=precision)  # type: ignore[arg-type]
        return lambda sources: [found[0].tokens for found in pipeline.decode(sources, beam=job.beam)]
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _start, (job.model, precision))
    atexit.register(pool.shutdown, wait=False, cancel_futures=True)

    def translate(sources: Rows) -> Rows:
        # Longest first, in pieces that keep all processes busy to the end.
        order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
        size = max(1, min(128, -(-len(order) // (2 * processes))))
        pieces = [order[first : first + size] for first in range(0, len(order), size)]
        made = pool.map(_translate, [[sources[index] for index in piece] for piece in pieces], [job.beam] * len(pieces))
        found = {
            index: tokens
            for piece, rows in zip(pieces, made, strict=True)
            for index, tokens in zip(piece, rows, strict=True)
        }
        return [found[index] for index in range(len(sources))]

    return translate


if __name__ == "__main__":
    run(prepare)
