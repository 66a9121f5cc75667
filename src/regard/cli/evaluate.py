"""`regard evaluate`: how good a trained model is on its run's validation data."""

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Metric(StrEnum):
    """What texts are scored by."""

    bleu = "bleu"
    chrf = "chrf"
    exact = "exact"
    loss = "loss"


def evaluate(
    directory: Annotated[Path, typer.Argument(help="The directory of a run, or one of its snapshots with --run.")],
    metric: Annotated[Metric | None, typer.Option(help="The run's own unless given.")] = None,
    beam: Annotated[int | None, typer.Option(help="How wide the search is; the run's own unless given.")] = None,
    run: Annotated[Path | None, typer.Option(help="The run whose data it is, if the model lies elsewhere.")] = None,
) -> None:
    """Score a model on the validation data of the run that trained it."""
    from regard.training.evaluation import evaluate_run

    judgement = evaluate_run(directory, run or directory, metric=metric and metric.value, beam=beam)
    typer.echo(f"loss {judgement.loss:.4f} per token, perplexity {math.exp(judgement.loss):.2f}")
    if judgement.score is not None:
        typer.echo(judgement.score.text)
        typer.echo(f"signature {judgement.score.signature}")
