"""`regard export`: a model for other runtimes."""

from enum import StrEnum
from itertools import islice
from pathlib import Path
from textwrap import fill
from typing import Annotated, Literal

import typer

from regard.errors import DataError, InputError

_SENTENCES = 1000  # that an export is checked on, at most


class Runtime(StrEnum):
    """Where a model can go."""

    ctranslate2 = "ctranslate2"
    onnx = "onnx"


class Quantization(StrEnum):
    """How weights are rounded."""

    int8 = "int8"


def export(
    model: Annotated[str, typer.Argument(help="A model directory, or the name of a model in the package.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write, which is not there yet.")],
    to: Annotated[Runtime, typer.Option(help="The runtime.")],
    check: Annotated[
        Path | None,
        typer.Option(help="Sentences and translations, a tab between, to check it on; the model's own unless given."),
    ] = None,
    quantize: Annotated[Quantization | None, typer.Option(help="Round the weights.")] = None,
    language: Annotated[
        str | None, typer.Option(help="The language of the translations; all of the model's unless given.")
    ] = None,
) -> None:
    """Write a model for another runtime, and check that it computes there what it computes here."""
    from regard import models
    from regard.data import TabSeparated
    from regard.export import export as export_model
    from regard.pipelines import load

    if output.exists():
        raise InputError(f"{output} already exists; choose another directory")
    pairs = None
    if check is not None:
        pairs = list(islice(TabSeparated(path=check).pairs(), _SENTENCES))
        if not pairs:
            raise DataError(f"{check} is empty; the export is checked on its sentences")
    pipeline = load(model, task="translation", precision="float")
    if check is not None:
        pipeline.check(language, {})
    typer.echo(f"writing it for {to.value}, and checking it: this takes a minute or two", err=True)
    weights: Literal["int8"] | None = None if quantize is None else "int8"
    found = export_model(
        pipeline, output, to=to.value, quantize=weights, pairs=pairs, language=language, directory=models.find(model)
    )
    typer.echo(f"{output}: written for {to.value} and checked; its README.md says how to use it.")
    typer.echo(fill(found.text, 80))
