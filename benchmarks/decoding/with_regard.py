"""regard: one process, as `regard translate` runs it."""

import torch

import regard
from benchmarks.decoding.job import Job, Rows, Translate, run
from regard.decoding import Request, SearchSettings
from regard.inference.decode import decode_requests, default_limit
from regard.inference.generic_decoder import GenericBackend
from regard.memory import keep_memory

keep_memory()  # as the command does


def prepare(job: Job, variant: list[str]) -> Translate:
    """`PRECISION THREADS`; the precision is float, int8, or "generic" for the generic decoder in float32."""
    precision, threads = variant[0], int(variant[1])
    torch.set_num_threads(threads)
    if precision == "generic":
        return _generic(job)
    pipeline = regard.load(job.model, precision=precision)  # type: ignore[call-overload]
    return lambda sources: [found[0].tokens for found in pipeline.decode(sources, beam=job.beam)]


def _generic(job: Job) -> Translate:
    pipeline = regard.load(job.model, precision="float")
    backend = GenericBackend(pipeline.model)

    def translate(sources: Rows) -> Rows:
        requests = [Request(limit=default_limit(backend, source)) for source in sources]
        settings = SearchSettings(beam=job.beam)
        found = decode_requests(backend, sources, requests, settings, never=pipeline.target.special)
        return [hypotheses[0].tokens for hypotheses in found]

    return translate


if __name__ == "__main__":
    run(prepare)
