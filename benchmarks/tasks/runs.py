"""The run files of `examples/`, trained for so many steps or minutes, and the page of what came of it."""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import regard
from benchmarks.variations.loop import once
from regard.data.catalog import published
from regard.data.downloads import get_corpus
from regard.memory import keep_memory
from regard.tasks import Score, score
from regard.training import Callback, Run
from regard.training.callbacks import METRICS, StepReport, read_metrics

EXAMPLES = Path(__file__).parents[2] / "examples"
_MEASURED = 40  # steps that tell how long one takes, the first half of them to warm up


@dataclass(frozen=True)
class Budget:
    """How long a run is: so many steps, or what so many minutes give; as its file says unless one is given."""

    steps: int | None = None
    minutes: float | None = None

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "Budget":
        """Return what the command line says."""
        return cls(arguments.steps, arguments.minutes)


class Printing(Callback):
    """Prints what happens, and every tenth report of steps."""

    def __init__(self) -> None:
        self._reports = 0

    def on_message(self, text: str) -> None:
        """Print a sentence."""
        print(text, flush=True)

    def on_step(self, report: StepReport, total: int) -> None:
        """Print a report now and then."""
        self._reports += 1
        if self._reports % 10 == 0:
            print(f"step {report.step}/{total} loss {report.loss:.3f} {report.seconds:.0f} s", flush=True)


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """Return the options that all of these benchmarks have."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a directory with the corpus; it is downloaded unless given")
    parser.add_argument("--out", type=Path, required=True, help="for data, models and scores; what is there is kept")
    parser.add_argument("--steps", type=int, help="how long to train; the run file's steps unless given")
    parser.add_argument("--minutes", type=float, help="the same, by the time that a step takes at first")
    parser.add_argument("--threads", type=int, help="of the training and of the decoding")
    parser.add_argument("--results", type=Path, help="the page; a dated one in benchmarks/results unless given")
    return parser


def corpus_in(out: Path, name: str, source: Path | None) -> Path:
    """Return the directory of a corpus, where the run files of examples look for it below `out`."""
    directory = out / "data" / name
    get_corpus(published(name), directory, source=source, tell=lambda text: None)
    return directory


def trained(example: str, out: Path, name: str, budget: Budget, changes: Sequence[str] = ()) -> Path:
    """Train by a run file of examples, with its data below `out`; return the model's directory.

    A model that is there is not trained again, and a run that was stopped goes on with the steps that it began with.
    """
    directory = out / "models" / name
    if (directory / "model.safetensors").exists():
        return directory
    keep_memory()  # as the command line does
    steps = budget.steps
    if budget.minutes is not None:
        minutes = budget.minutes
        steps = once(out / "models" / f"{name}.steps.json", lambda: _measured(example, out, changes, minutes))["steps"]
    if steps is not None:
        changes = [*changes, f"training.steps={steps}"]
    regard.train(_run(example, out, changes), directory, callback=Printing())
    return directory


def _run(example: str, base: Path, changes: Sequence[str]) -> Run:
    text = (EXAMPLES / f"{example}.toml").read_text(encoding="utf-8")
    return Run.from_toml(text, changes=changes, base=base.resolve())


def _measured(example: str, base: Path, changes: Sequence[str], minutes: float) -> dict[str, Any]:
    """Return how many steps fit into the minutes, by the time that a few take."""
    short = [*changes, f"training.steps={_MEASURED}", f"training.report_every={_MEASURED // 2}", "data.valid=[]"]
    short.append("training.curriculum=0")
    with tempfile.TemporaryDirectory() as scratch:
        regard.train(_run(example, base, short), scratch)
        lines = [line for line in read_metrics(Path(scratch) / METRICS) if line["kind"] == "steps"]
    first, last = next(line for line in lines if line["step"] >= _MEASURED // 2), lines[-1]
    seconds = (last["seconds"] - first["seconds"]) / (last["step"] - first["step"])
    return {"steps": max(1, round(60 * minutes / seconds)), "seconds a step": seconds}


def described(directory: Path) -> dict[str, Any]:
    """Return the size of a model, and how long it was trained."""
    lines = [line for line in read_metrics(directory / METRICS) if line["kind"] == "steps"]
    return {
        "parameters": sum(parameter.numel() for parameter in regard.Transformer.load(directory).parameters()),
        "steps": lines[-1]["step"],
        "epochs": lines[-1]["epoch"],
        "minutes": lines[-1]["seconds"] / 60,
    }


def in_words(about: dict[str, Any]) -> str:
    """Return the size of a model and its training in words."""
    minutes = max(1, round(about["minutes"]))
    return (
        f"{about['parameters'] / 1e6:.1f} M parameters, {about['steps']:,} steps ({about['epochs']:.1f} passes) "
        f"in {minutes} minute{'s' if minutes > 1 else ''}"
    )


def scored(metrics: Sequence[str], texts: Sequence[str], references: Sequence[Any]) -> dict[str, Any]:
    """Return scores with their 95 % intervals, as they are kept in files."""
    found: list[Score] = [score(metric, texts, references, bootstrap=1000) for metric in metrics]
    return {one.name: {"value": one.value, "interval": one.interval, "signature": one.signature} for one in found}


def cell(found: dict[str, Any]) -> str:
    """Return a score with its interval: 31.2 (30.4 to 32.0)."""
    low, high = found["interval"]
    return f"{found['value']:.1f} ({low:.1f} to {high:.1f})"
