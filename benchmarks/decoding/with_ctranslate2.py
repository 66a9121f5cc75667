"""CTranslate2, sorting its batches by length as it does by default."""

import json
from pathlib import Path

import ctranslate2

from benchmarks.decoding.job import Job, Rows, Translate, run


def prepare(job: Job, variant: list[str]) -> Translate:
    """`COMPUTE_TYPE WORKERS THREADS BATCH`."""
    compute, workers, threads, batch = variant[0], int(variant[1]), int(variant[2]), int(variant[3])
    exported = Path(job.exported) / compute
    translator = ctranslate2.Translator(
        str(exported), device="cpu", compute_type=compute, inter_threads=workers, intra_threads=threads
    )
    tokens = json.loads((exported / "shared_vocabulary.json").read_text(encoding="utf-8"))
    numbers = {token: number for number, token in enumerate(tokens)}

    def translate(sources: Rows) -> Rows:
        results = translator.translate_batch(
            [[tokens[number] for number in source] for source in sources],
            beam_size=job.beam,
            length_penalty=1.0,
            max_batch_size=batch,
            max_decoding_length=job.longest,
        )
        return [[numbers[token] for token in result.hypotheses[0]] for result in results]

    return translate


if __name__ == "__main__":
    run(prepare)
