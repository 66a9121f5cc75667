"""The README of a trained model: what it was made from, and how good it is."""

import json
from pathlib import Path

from regard import __version__
from regard.decoding.settings import GENERATION
from regard.files import replaced_file
from regard.training.callbacks import METRICS, read_metrics
from regard.training.final_model import FinalModel
from regard.training.recipe import Run


def write_card(out: Path, run: Run, model: FinalModel) -> None:
    """Write `README.md`, and `generation.json` with how the model was made to write."""
    with replaced_file(out / GENERATION) as fresh:
        content = {"beam": max(run.validation.beam, 1), "length_penalty": run.validation.length_penalty}
        if any(corpus.augment is not None for corpus in run.data.train):
            content |= {"placeholders": True, "fold_capitals": True}
        fresh.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    with replaced_file(out / "README.md") as fresh:
        fresh.write_text(_card(out, run, model), encoding="utf-8")


def _card(out: Path, run: Run, model: FinalModel) -> str:
    tasks = " and ".join(task.kind for task in run.task)
    lines = [f"# {out.resolve().name}", "", f"A Transformer for {tasks}, trained by regard {__version__}.", ""]
    lines += ["## Data", ""]
    for corpus in run.data.train:
        names = ", ".join(path.name for path in corpus.files()) or f"{corpus.kind}, generated"
        lines.append(f"- {names}" + (f", weight {corpus.weight:g}" if corpus.weight != 1.0 else ""))
    metrics = read_metrics(out / METRICS) if (out / METRICS).exists() else []
    steps = [line for line in metrics if line["kind"] == "steps"]
    if steps:
        last = steps[-1]
        lines += ["", "## Training", ""]
        lines.append(f"{last['step']:,} steps, {last['epoch']:.1f} epochs, {last['seconds'] / 60:.1f} minutes.")
    lines += ["", f"Its weights are {model.origin}."]
    if (found := model.result) is not None:
        score, unit = found.score, "example" if run.shape == "encoder-only" else "token"
        scored = "" if score is None else f", {run.validation.metric} {score.value:.2f} (`{score.signature}`)"
        lines.append(f"On the validation data it has a loss of {found.loss:.4f} per {unit}{scored}.")
    lines += ["", "`run.json` has the whole recipe, `metrics.jsonl` how it went.", ""]
    return "\n".join(lines)
