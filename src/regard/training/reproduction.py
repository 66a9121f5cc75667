"""Published results, trained and scored again."""

import json
import statistics
import time
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import torch

from regard import recipes
from regard.errors import InputError
from regard.files import read_json, replaced_file
from regard.text import ParallelFiles
from regard.text.catalogue import published
from regard.text.download import get_corpus
from regard.training.evaluation import evaluate_run
from regard.training.machine import allocator, cpu_name
from regard.training.recipe import Run
from regard.training.reports import METRICS, Listener, read_metrics
from regard.training.run import train

RESULT = "result.json"


@dataclass(frozen=True)
class Experiment:
    """A published result: what it was trained on, what it is scored on."""

    corpus: str
    presets: dict[str, str]
    """Recipes of the package, by what they are called here."""
    tests: tuple[str, ...]
    source: str
    target: str
    beam: int
    published: str
    """What was published, with where."""


EXPERIMENTS = {
    "multi30k": Experiment(
        corpus="multi30k-bpe10k",
        presets={"published": "multi30k-published", "regard": "multi30k"},
        tests=("test.2016", "test.2017", "test.coco"),
        source="en",
        target="de",
        beam=5,
        published="41.02 BLEU on test.2016 (Transformer-Tiny, Wu et al. 2021, LividWo/Revisit-MMT)",
    )
}


@dataclass(frozen=True)
class Result:
    """One run's outcome."""

    preset: str
    seed: int
    scores: dict[str, float]
    texts: dict[str, str]
    signature: str
    minutes: float
    steps: int
    validation: float
    """The validation score of the model that was tested."""


def reproduce(name: str, preset: str, seed: int, *, data: Path, out: Path, listener: Listener) -> Result:
    """Train one seed of an experiment and score it; what is done already is read, so tests are scored once."""
    experiment = _experiment(name)
    if preset not in experiment.presets:
        raise InputError(f"preset {preset!r} is not one of {', '.join(experiment.presets)}")
    directory = out / f"{preset}-{seed}"
    if (directory / RESULT).exists():
        return Result(**read_json(directory / RESULT))
    corpus = out / experiment.corpus
    get_corpus(published(experiment.corpus), corpus, source=data, tell=lambda _: None)
    text = recipes.path_of(experiment.presets[preset]).read_text(encoding="utf-8")
    run = Run.from_toml(text, changes=[f"training.seed={seed}"], base=corpus.resolve())
    train(run, directory, listener=listener)
    scored = {}
    began = time.perf_counter()
    for part in experiment.tests:
        pair = ParallelFiles(
            source=corpus / f"{part}.{experiment.source}", target=corpus / f"{part}.{experiment.target}"
        )
        judgement = evaluate_run(directory, directory, corpora=(pair,), metric="bleu", beam=experiment.beam)
        assert judgement.score is not None
        scored[part] = judgement.score
        listener.tell(f"{part}: {judgement.score.text}")
    decoding = time.perf_counter() - began
    valid = evaluate_run(directory, directory, metric="bleu", beam=experiment.beam).score
    assert valid is not None
    steps = [line for line in read_metrics(directory / METRICS) if line["kind"] == "steps"]
    result = Result(
        preset,
        seed,
        {part: score.value for part, score in scored.items()},
        {part: score.text for part, score in scored.items()},
        scored[experiment.tests[0]].signature,
        (steps[-1]["seconds"] + decoding) / 60,
        steps[-1]["step"],
        valid.value,
    )
    with replaced_file(directory / RESULT) as fresh:
        fresh.write_text(json.dumps(asdict(result), indent=1) + "\n", encoding="utf-8")
    return result


def report(name: str, results: list[Result], command: str) -> str:
    """Write the outcome as a page: scores, spread, time, hardware, signature."""
    experiment = _experiment(name)
    tests = experiment.tests
    lines = [
        f"# {name}, {date.today().isoformat()}",
        "",
        f"`{command}`",
        "",
        f"On {cpu_name()}, {torch.get_num_threads()} threads, torch {torch.__version__}, memory by {allocator()}.",
        f"Published: {experiment.published}. Beam {experiment.beam}; every choice was made on `valid`.",
        "",
        f"| preset | seed | valid | {' | '.join(tests)} | steps | minutes |",
        f"|---|---|---|{'---|' * len(tests)}---|---|",
    ]
    for result in results:
        scores = " | ".join(f"{result.scores[part]:.2f}" for part in tests)
        lines.append(
            f"| {result.preset} | {result.seed} | {result.validation:.2f} | {scores} | {result.steps:,} | "
            f"{result.minutes:.0f} |"
        )
    for preset in sorted({result.preset for result in results}):
        found = [result.scores for result in results if result.preset == preset]
        if len(found) > 1:
            means = ", ".join(
                f"{part} {statistics.mean(s[part] for s in found):.2f} ± {statistics.stdev(s[part] for s in found):.2f}"
                for part in tests
            )
            lines += ["", f"Mean and deviation of {len(found)} seeds of {preset}: {means}."]
    lines += ["", *(f"- {result.preset} {result.seed}, {tests[0]}: {result.texts[tests[0]]}" for result in results)]
    lines += ["", f"Signature: `{results[0].signature}`", ""]
    return "\n".join(lines)


def _experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise InputError(f"{name!r} is not known; what can be reproduced: {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
