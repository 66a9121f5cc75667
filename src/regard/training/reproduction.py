"""Published results, trained and scored again."""

import json
import statistics
import time
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import torch

from regard import recipes
from regard.data.catalog import published
from regard.data.corpora import Corpus
from regard.data.downloads import get_corpus
from regard.errors import InputError
from regard.files import read_json, replaced_file
from regard.memory import allocator
from regard.model import Transformer
from regard.tasks import Score
from regard.training.callbacks import METRICS, Callback, read_metrics
from regard.training.environment import cpu_name
from regard.training.evaluation import score_run
from regard.training.experiments import experiment_of
from regard.training.recipe import Run
from regard.training.run_training import train

RESULT = "result.json"


@dataclass(frozen=True)
class Result:
    """One run's outcome."""

    preset: str
    seed: int
    parameters: int
    bleu: dict[str, float]
    """Of each test set."""
    chrf: dict[str, float]
    texts: dict[str, str]
    """The BLEU of each test set in its own words."""
    signatures: list[str]
    minutes: float
    steps: int
    validation: float
    """The validation BLEU of the model that was tested."""


def reproduce(name: str, preset: str, seed: int, *, data: Path | None, out: Path, callback: Callback) -> Result:
    """Train one seed of an experiment and score it; what is done already is read, so tests are scored once."""
    experiment = experiment_of(name)
    if preset not in experiment.presets:
        raise InputError(f"preset {preset!r} is not one of {', '.join(experiment.presets)}")
    directory = out / f"{preset}-{seed}"
    if (directory / RESULT).exists():
        return Result(**read_json(directory / RESULT))
    corpus = out / experiment.corpus
    get_corpus(published(experiment.corpus), corpus, source=data, tell=lambda _: None)
    experiment.prepare(corpus)
    text = recipes.path_of(experiment.presets[preset]).read_text(encoding="utf-8")
    run = Run.from_toml(text, changes=[f"training.seed={seed}"], base=corpus.resolve())
    train(run, directory, callback=callback)
    began = time.perf_counter()
    scored = _scored(directory, experiment.tests(corpus), experiment.beam, callback)
    decoding = time.perf_counter() - began
    validation = score_run(directory, directory, metrics=("bleu",), beam=experiment.beam)["bleu"]
    steps = [line for line in read_metrics(directory / METRICS) if line["kind"] == "steps"]
    result = Result(
        preset,
        seed,
        sum(parameter.numel() for parameter in Transformer.load(directory).parameters()),
        {part: scores["bleu"].value for part, scores in scored.items()},
        {part: scores["chrf"].value for part, scores in scored.items()},
        {part: scores["bleu"].text for part, scores in scored.items()},
        [score.signature for score in next(iter(scored.values())).values()],
        (steps[-1]["seconds"] + decoding) / 60,
        steps[-1]["step"],
        validation.value,
    )
    with replaced_file(directory / RESULT) as fresh:
        fresh.write_text(json.dumps(asdict(result), indent=1) + "\n", encoding="utf-8")
    return result


def _scored(directory: Path, tests: dict[str, Corpus], beam: int, callback: Callback) -> dict[str, dict[str, Score]]:
    scored = {}
    for part, corpus in tests.items():
        scored[part] = score_run(directory, directory, corpora=(corpus,), metrics=("bleu", "chrf"), beam=beam)
        callback.on_message(f"{part}: {', '.join(score.text for score in scored[part].values())}")
    return scored


def report(name: str, results: list[Result], command: str) -> str:
    """Write the outcome as a page: scores, spread, time, hardware, signature."""
    experiment = experiment_of(name)
    tests = list(results[0].bleu)
    lines = [
        f"# {name}, {date.today().isoformat()}",
        "",
        f"`{command}`",
        "",
        f"On {cpu_name()}, {torch.get_num_threads()} threads, torch {torch.__version__}, memory by {allocator()}.",
        f"{experiment.published} Beam {experiment.beam}; every choice was made on `valid`.",
        "Test sets: BLEU / chrF.",
        "",
        f"| preset | seed | parameters | valid BLEU | {' | '.join(tests)} | steps | minutes |",
        f"|---|---|---|---|{'---|' * len(tests)}---|---|",
    ]
    for result in results:
        scores = " | ".join(f"{result.bleu[part]:.2f} / {result.chrf[part]:.2f}" for part in tests)
        lines.append(
            f"| {result.preset} | {result.seed} | {result.parameters / 1e6:.1f} M | {result.validation:.2f} | {scores} "
            f"| {result.steps:,} | {result.minutes:.0f} |"
        )
    for preset in sorted({result.preset for result in results}):
        found = [result.bleu for result in results if result.preset == preset]
        if len(found) > 1:
            means = ", ".join(
                f"{part} {statistics.mean(s[part] for s in found):.2f} ± {statistics.stdev(s[part] for s in found):.2f}"
                for part in tests
            )
            lines += ["", f"Mean and deviation of the BLEU of {len(found)} seeds of {preset}: {means}."]
    lines += ["", *(f"- {result.preset} {result.seed}, {tests[0]}: {result.texts[tests[0]]}" for result in results)]
    signatures = " and ".join(f"`{signature}`" for signature in results[0].signatures)
    lines += ["", f"Signatures: {signatures}", ""]
    return "\n".join(lines)
