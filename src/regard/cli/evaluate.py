"""`regard evaluate`: how good a model is, on its run's validation data or on files."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.errors import DataError, InputError

_FILES = "On files"


class Metric(StrEnum):
    """What texts are scored by."""

    bleu = "bleu"
    chrf = "chrf"
    exact = "exact"
    loss = "loss"


def evaluate(
    directory: Annotated[
        Path | None, typer.Argument(help="The directory of a run, or one of its snapshots with --run.")
    ] = None,
    metric: Annotated[Metric | None, typer.Option(help="The run's own unless given.")] = None,
    beam: Annotated[int | None, typer.Option(help="How wide the search is; the model's own unless given.")] = None,
    run: Annotated[Path | None, typer.Option(help="The run whose data it is, if the model lies elsewhere.")] = None,
    model: Annotated[
        str | None, typer.Option(help="A model directory, or the name of one in the package.", rich_help_panel=_FILES)
    ] = None,
    source: Annotated[Path | None, typer.Option(help="A file of sources.", rich_help_panel=_FILES)] = None,
    reference: Annotated[Path | None, typer.Option(help="Their translations.", rich_help_panel=_FILES)] = None,
    to: Annotated[str | None, typer.Option(help="The language to write.", rich_help_panel=_FILES)] = None,
    shortlist: Annotated[
        bool | None, typer.Option("--shortlist/--all-words", help="Only likely words.", rich_help_panel=_FILES)
    ] = None,
    bootstrap: Annotated[
        int | None, typer.Option(min=1, help="Draws for the intervals of 95 %; 1000.", rich_help_panel=_FILES)
    ] = None,
) -> None:
    """Score a model on the validation data of the run that trained it, or on a file and its translation."""
    if model is not None:
        if source is None or reference is None or directory is not None or run is not None or metric is not None:
            raise InputError("--model goes with --source and --reference, and without a run or a metric")
        _evaluate_files(model, source, reference, to, {"beam": beam, "shortlist": shortlist}, bootstrap or 1000)
    elif directory is None or any(option is not None for option in (source, reference, to, shortlist, bootstrap)):
        raise InputError("give the directory of a run, or --model with --source and --reference")
    else:
        _evaluate_run(directory, run or directory, metric, beam)


def _evaluate_run(directory: Path, run: Path, metric: Metric | None, beam: int | None) -> None:
    from regard.training.evaluation import evaluate_run

    judgement = evaluate_run(directory, run, metric=metric and metric.value, beam=beam)
    typer.echo(f"loss {judgement.loss:.4f} per token, perplexity {judgement.perplexity:.2f}")
    if judgement.score is not None:
        typer.echo(judgement.score.text)
        typer.echo(f"signature {judgement.score.signature}")


def _evaluate_files(
    model: str, source: Path, reference: Path, to: str | None, changes: dict[str, Any], bootstrap: int
) -> None:
    from regard.cli.progress import progress
    from regard.pipeline import load
    from regard.pipeline.jobs import count_lines
    from regard.tasks import score
    from regard.text.corpora import read_lines

    pipeline = load(model)
    pipeline.check(to, changes)
    counts = {path: count_lines(path)[0] for path in (source, reference)}
    if counts[source] != counts[reference]:
        raise DataError(f"{source} has {counts[source]:,} lines, {reference} {counts[reference]:,}; one for one is due")
    texts: list[str] = []
    sources = list(read_lines(source))
    with progress(len(sources)) as moved:
        for first in range(0, len(sources), 256):
            made = pipeline.translate(sources[first : first + 256], to=to, **changes)
            texts += [translation.text for translation in made]
            moved.by(len(made))
    references = list(read_lines(reference))
    for name in ("bleu", "chrf"):
        found = score(name, texts, references, bootstrap=bootstrap)
        typer.echo(found.text)
        typer.echo(f"signature {found.signature}")
