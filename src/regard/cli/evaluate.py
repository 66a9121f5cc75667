"""`regard evaluate`: how good a model is, on its run's validation data, its test set or files."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.errors import DataError, InputError

if TYPE_CHECKING:
    from regard.data.evaluation_set import Direction
    from regard.pipelines import Pipeline

_FILES = "On a test set or on files"


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
    source: Annotated[
        Path | None,
        typer.Option(help="A file of sources; the model's own test set unless given.", rich_help_panel=_FILES),
    ] = None,
    reference: Annotated[Path | None, typer.Option(help="Their translations.", rich_help_panel=_FILES)] = None,
    to: Annotated[
        str | None, typer.Option(help="The target language; of a test set, all unless given.", rich_help_panel=_FILES)
    ] = None,
    shortlist: Annotated[
        bool | None, typer.Option("--shortlist/--all-words", help="Only likely words.", rich_help_panel=_FILES)
    ] = None,
    bootstrap: Annotated[
        int | None, typer.Option(min=1, help="Samples for the 95 % intervals; 1000.", rich_help_panel=_FILES)
    ] = None,
) -> None:
    """Score a model on the validation data of its run, on the test set that it comes with, or on files."""
    if model is not None:
        if directory is not None or run is not None or metric is not None:
            raise InputError("--model takes a test set or files; it goes without a run and without a metric")
        if (source is None) != (reference is None):
            raise InputError("--source and --reference go together; without both, the model's own test set is used")
        _evaluate_model(model, source, reference, to, {"beam": beam, "shortlist": shortlist}, bootstrap or 1000)
    elif directory is None or any(option is not None for option in (source, reference, to, shortlist, bootstrap)):
        raise InputError("give the directory of a run, or --model with or without --source and --reference")
    else:
        _evaluate_run(directory, run or directory, metric, beam)


def _evaluate_run(directory: Path, run: Path, metric: Metric | None, beam: int | None) -> None:
    from regard.training.evaluation import evaluate_run

    judgement = evaluate_run(directory, run, metric=metric and metric.value, beam=beam)
    typer.echo(f"loss {judgement.loss:.4f} per token, perplexity {judgement.perplexity:.2f}")
    if judgement.score is not None:
        typer.echo(judgement.score.text)
        typer.echo(f"signature {judgement.score.signature}")


def _evaluate_model(
    model: str,
    source: Path | None,
    reference: Path | None,
    to: str | None,
    changes: dict[str, Any],
    bootstrap: int,
) -> None:
    from regard import models
    from regard.data.evaluation_set import read_test_set
    from regard.pipelines import load

    pipeline = load(model)
    if source is not None and reference is not None:
        pipeline.check(to, changes)
        directions = [_read_files(source, reference, to)]
    else:
        if to is not None:
            pipeline.tag(to)  # refuses a language that the model does not know
        pipeline.with_changes(changes)
        directions = read_test_set(models.find(model), pipeline.languages, to)
    for number, direction in enumerate(directions):
        if number:
            typer.echo("")
        _evaluate_direction(pipeline, direction, changes, bootstrap)


def _read_files(source: Path, reference: Path, to: str | None) -> "Direction":
    from regard.data.corpora import read_lines
    from regard.data.evaluation_set import Direction
    from regard.inference.jobs import count_lines

    counts = {path: count_lines(path)[0] for path in (source, reference)}
    if counts[source] != counts[reference]:
        raise DataError(f"{source} has {counts[source]:,} lines, {reference} {counts[reference]:,}; one for one is due")
    return Direction(None, to, list(zip(read_lines(source), read_lines(reference), strict=True)))


def _evaluate_direction(pipeline: "Pipeline", direction: "Direction", changes: dict[str, Any], bootstrap: int) -> None:
    from regard.cli.progress import progress
    from regard.tasks import score

    sources, references = ([pair[side] for pair in direction.pairs] for side in (0, 1))
    texts: list[str] = []
    with progress(len(sources)) as moved:
        for first in range(0, len(sources), 256):
            made = pipeline.translate(sources[first : first + 256], to=direction.target, **changes)
            texts += [translation.text for translation in made]
            moved.by(len(made))
    bleu, chrf = (score(name, texts, references, bootstrap=bootstrap) for name in ("bleu", "chrf"))
    where = f"{direction}, " if str(direction) else ""
    typer.echo(f"{where}{len(sources):,} pairs: {bleu.value:.1f} BLEU, {chrf.value:.1f} chrF")
    for found in (bleu, chrf):
        typer.echo(found.text.replace(" (BP", "\n  (BP"))  # a line for the score, one for its details
        typer.echo(found.signature)
