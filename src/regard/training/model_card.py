"""The README of a trained model: what it was made from, and how good it is."""

import json
from pathlib import Path

from regard import __version__
from regard.files import replaced_file
from regard.pipeline.pipeline import GENERATION
from regard.training.recipe import Run
from regard.training.reports import METRICS, read_metrics


def write_card(out: Path, run: Run) -> None:
    """Write `README.md`, and `generation.json` with how the model was made to write."""
    with replaced_file(out / GENERATION) as fresh:
        content = {"beam": max(run.validation.beam, 1), "length_penalty": run.validation.length_penalty}
        fresh.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    with replaced_file(out / "README.md") as fresh:
        fresh.write_text(_card(out, run), encoding="utf-8")


def _card(out: Path, run: Run) -> str:
    lines = [f"# {out.resolve().name}", "", f"A Transformer trained by regard {__version__}.", ""]
    lines += ["## Data", ""]
    for corpus in run.data.train:
        names = ", ".join(path.name for path in corpus.files()) or f"{corpus.kind}, generated"
        lines.append(f"- {names}" + (f", weight {corpus.weight:g}" if corpus.weight != 1.0 else ""))
    metrics = read_metrics(out / METRICS) if (out / METRICS).exists() else []
    validations = [line for line in metrics if line["kind"] == "validation"]
    steps = [line for line in metrics if line["kind"] == "steps"]
    if steps:
        last = steps[-1]
        lines += ["", "## Training", ""]
        lines.append(f"{last['step']:,} steps, {last['epoch']:.1f} epochs, {last['seconds'] / 60:.1f} minutes.")
    if validations:
        last = validations[-1]
        scored = f", {run.validation.metric} {last['score']:.2f} (`{last['signature']}`)" if "score" in last else ""
        lines += ["", f"At the last validation: loss {last['loss']:.4f} per token{scored}."]
    lines += ["", "`run.json` has the whole recipe, `metrics.jsonl` how it went.", ""]
    return "\n".join(lines)
