"""regard: one process, as `regard translate` runs it."""

import torch

import regard
from benchmarks.decoding.job import Job, Translate, run
from regard.memory import keep_memory

keep_memory()  # as the command does


def prepare(job: Job, variant: list[str]) -> Translate:
    """`PRECISION THREADS`."""
    precision, threads = variant[0], int(variant[1])
    torch.set_num_threads(threads)
    pipeline = regard.load(job.model, precision=precision)  # type: ignore[arg-type]
    return lambda sources: [found[0].tokens for found in pipeline.decode(sources, beam=job.beam)]


if __name__ == "__main__":
    run(prepare)
