"""A process with one workload, by what both checkouts have in common.

It prints a number for each line that it reads: how much is done in a second.
"""

import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TEST_SET = Path(__file__).parents[2] / "src" / "regard" / "models" / "de-en" / "test.tsv"

_RUN = """
data.train = [{{kind = "tsv", path = "{pairs}"}}]
tokenizer = {{vocab_size = {vocab_size}}}
model = {model}
training = {{steps = {steps}, batch_tokens = {batch_tokens}, {training}}}
"""
TINY = '{preset = "tiny"}'
_BASE = '{preset = "base", encoder_layers = 3, decoder_layers = 3, dropout = 0.1}'


def sentences(count: int) -> list[str]:
    """Return German sentences that the model has not seen."""
    lines = TEST_SET.read_text(encoding="utf-8").splitlines()[:count]
    return [line.split("\t")[1] for line in lines]


Measure = Callable[[], float]


def reports_of_training(model: str, settings: str, steps: int, batch_tokens: int = 4096) -> list[dict[str, float]]:
    """Train on made-up pairs, and return the reports of the run."""
    import regard

    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(6000)]
    lines = []
    for _ in range(4000):
        line = " ".join(draw.choices(words, k=draw.randint(5, 25)))
        lines.append(f"{line}\t{line[::-1]}\n")
    with tempfile.TemporaryDirectory() as directory:
        pairs, run = Path(directory) / "pairs.tsv", Path(directory) / "run.toml"
        pairs.write_text("".join(lines), encoding="utf-8")
        sizes = {"steps": steps, "batch_tokens": batch_tokens, "vocab_size": 8000}
        run.write_text(_RUN.format(pairs=pairs, model=model, training=settings, **sizes), encoding="utf-8")
        regard.train(run, Path(directory) / "out")
        reports = map(json.loads, (Path(directory) / "out" / "metrics.jsonl").read_text().splitlines())
        return [report for report in reports if report["kind"] == "steps"]


def train(model: str, settings: str, steps: int, batch_tokens: int = 4096) -> Measure:
    """Measure the target tokens a second of training, the median of the reports."""

    def measure() -> float:
        reports = reports_of_training(model, f"report_every = 2, {settings}", steps, batch_tokens)
        return float(statistics.median(report["tokens_per_second"] for report in reports[2:]))

    return measure


def median_seconds(work: Callable[[], object], repetitions: int = 3) -> float:
    """Return the median time of some repetitions."""
    seconds = []
    for _ in range(repetitions):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def translate(precision: str, beam: int, count: int) -> Measure:
    """Measure sentences a second."""
    import regard

    pipeline, texts = regard.load(model_directory(), precision=precision), sentences(count)  # type: ignore[call-overload]
    pipeline.translate(texts[:64], to="en", beam=beam)

    def measure() -> float:
        return count / median_seconds(lambda: pipeline.translate(texts, to="en", beam=beam))

    return measure


def one_sentence(beam: int) -> Measure:
    """Measure single sentences a second, the median of many."""
    import regard

    pipeline = regard.load(model_directory())

    def measure() -> float:
        seconds = []
        for text in sentences(210):
            began = time.perf_counter()
            pipeline.translate(text, to="en", beam=beam)
            seconds.append(time.perf_counter() - began)
        return 1 / statistics.median(seconds[10:])

    return measure


def validate(count: int) -> Measure:
    """Measure sentences a second of what validation decodes with."""
    from importlib import import_module
    from importlib.util import find_spec

    import regard

    decode = import_module("regard.inference.decode" if find_spec("regard.inference") else "regard.pipeline").decode

    pipeline = regard.load(model_directory(), precision="float")
    sources = [pipeline.encoded(text, "en") for text in sentences(count)]

    def measure() -> float:
        return count / median_seconds(lambda: decode(pipeline.model, sources, beam=1))

    return measure


INT8 = 'precision = "int8", softmax_gradient = "drawn"'
WORKLOADS: dict[str, Callable[[], Measure]] = {
    "training Tiny, int8 and sampled gradients": lambda: train(TINY, INT8, 30),
    "training Tiny, float32": lambda: train(TINY, 'precision = "float32"', 20),
    "training base-like, int8 and sampled gradients": lambda: train(_BASE, INT8, 20, 1024),
    "training base-like, float32": lambda: train(_BASE, 'precision = "float32"', 14, 1024),
    "translating, int8, beam 5": lambda: translate("int8", 5, 400),
    "translating, int8, greedy": lambda: translate("int8", 1, 800),
    "translating, float, beam 5": lambda: translate("float", 5, 200),
    "translating, float, greedy": lambda: translate("float", 1, 400),
    "one sentence, beam 5": lambda: one_sentence(5),
    "one sentence, greedy": lambda: one_sentence(1),
    "validation, greedy": lambda: validate(300),
}


def model_directory() -> Path:
    """Return the directory of the model in the old checkout's package, which both load."""
    return Path(sys.argv[-1]) / "src" / "regard" / "models" / "de-en"


def main(name: str) -> None:
    """Measure whenever a line comes."""
    measure = WORKLOADS[name]()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(measure(), flush=True)


if __name__ == "__main__":
    from regard.memory import keep_memory

    keep_memory()
    main(sys.argv[1])
