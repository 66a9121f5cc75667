"""`make bench-plain`: writes benchmarks/results/plain-DATE.md.

Training with kernels off beside `torch.nn.Transformer`, and the generic decoder beside Hugging Face's `generate`. Both
peers are in the environment of the development tools.
"""

import argparse
import datetime
import json
import os
import tempfile
from pathlib import Path

import regard
from benchmarks.alternating import KEEP_MEMORY, Contestant, alternate, machine, ratios
from benchmarks.refactor.workload import sentences
from benchmarks.training.measure import SIZES, make_batches

RESULTS = Path(__file__).parents[1] / "results"
ROOT = Path(__file__).parents[2]
OFF = {"REGARD_KERNELS": "off", **KEEP_MEMORY}
SENTENCES = 200


def training(size: str, work: Path) -> list[Contestant]:
    """Return the contestants of training in float32, with the same allocator settings."""
    batches = work / f"{size}.npz"
    make_batches(SIZES[size], batches)
    return [
        Contestant(name, [f"benchmarks.training.with_{module}", size, str(batches)], environment)
        for name, module, environment in (
            ("regard, kernels off", "regard", OFF),
            ("torch.nn.Transformer", "torch", dict(KEEP_MEMORY)),
        )
    ]


def decoding(work: Path, threads: int) -> list[Contestant]:
    """Return the contestants of decoding in float32, beam 5, with the weights of the model in the package."""
    pipeline = regard.load("de-en", precision="float")
    pipeline.model.save(work / "regard")
    pipeline.target.save(work / "regard" / "tokenizer.json")
    job = work / "beam-5.json"
    sources = [pipeline.encoded(text, "en") for text in sentences(SENTENCES)]
    content = {"model": str(work / "regard"), "exported": "", "sources": sources, "beam": 5, "one_by_one": 20}
    job.write_text(json.dumps(content), encoding="utf-8")
    return [
        Contestant(
            name, [f"benchmarks.decoding.with_{module}", str(job), str(work / f"{name}.out"), *variant], environment
        )
        for name, module, variant, environment in (
            ("regard, generic decoder, kernels off", "regard", ["generic", str(threads)], OFF),
            ("Hugging Face `generate`", "huggingface", [str(threads), "64"], dict(KEEP_MEMORY)),
        )
    ]


def table(contestants: list[Contestant], measure: str, heading: str, unit: float) -> list[str]:
    """Return a table of a measure, the first contestant against the second."""
    ours, peer = contestants
    middle, low, high = ratios(ours, peer, measure)
    return [
        "",
        f"## {heading}",
        "",
        "| | median | fastest | slowest |",
        "| --- | ---: | ---: | ---: |",
        *(
            f"| {one.name} | {unit * one.median(measure):,.1f} | {unit * min(row[measure] for row in one.rounds):,.1f} "
            f"| {unit * max(row[measure] for row in one.rounds):,.1f} |"
            for one in contestants
        ),
        "",
        f"{ours.name}: {middle:.2f} times as fast (median of {len(ours.rounds)} rounds; {low:.2f} to {high:.2f}).",
    ]


def main() -> None:
    """Measure, and write a page of results; `--only` measures and prints one part."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=[*SIZES, "decoding"])
    arguments = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        for part in [*SIZES, "decoding"] if arguments.only is None else [arguments.only]:
            if part == "decoding":
                contestants = decoding(Path(directory), threads)
                alternate(contestants, arguments.rounds, threads)
                heading = f"Decoding, beam 5, {SENTENCES} sentences"
                lines += table(contestants, "seconds", f"{heading}: seconds", 1.0)
                lines += table(contestants, "alone", "One sentence by itself: milliseconds", 1000.0)
            else:
                contestants = training(part, Path(directory))
                alternate(contestants, arguments.rounds, threads)
                lines += table(contestants, "seconds", f"Training, {part}: ms per 1,000 target tokens", 1000.0)
    print("\n".join(lines))
    parts = ROOT / "build" / "plain"
    parts.mkdir(parents=True, exist_ok=True)
    (parts / f"{arguments.only or 'all'}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = [parts / f"{part}.md" for part in ([*SIZES, "decoding"] if arguments.only else ["all"])]
    if all(path.exists() for path in found):
        body = "".join(path.read_text(encoding="utf-8") for path in found)
        today = datetime.date.today().isoformat()
        (RESULTS / f"plain-{today}.md").write_text(_head(today, threads) + body, encoding="utf-8")


def _head(today: str, threads: int) -> str:
    return (
        f"# Without kernels, {today}\n\n`make bench-plain` made this file. {machine()}; {threads} threads.\n\n"
        "regard with `REGARD_KERNELS=off` beside its peers, all in float32: fresh processes in turns, all told to\n"
        "keep freed memory. Training as in `make bench-training`; decoding with the weights of the model in the\n"
        "package for both, for Hugging Face in batches of 64 sentences of about the same length.\n"
    )


if __name__ == "__main__":
    main()
