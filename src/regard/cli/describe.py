"""`regard describe`: the shapes and parameters of a model."""

from pathlib import Path
from typing import Annotated

import typer


def describe(
    model: Annotated[Path | None, typer.Argument(help="A model directory.")] = None,
    preset: Annotated[str | None, typer.Option(help="A preset in its place: tiny, small, base or big.")] = None,
    vocab_size: Annotated[int, typer.Option(help="The preset's vocabulary.")] = 37_000,
) -> None:
    """Print every symbol of a model, its meaning, its shape and its parameters, the notes' letters beside ours."""
    import torch

    from regard.errors import InputError
    from regard.model import Transformer, TransformerConfig
    from regard.model.directory import CONFIG_FILE, read_config

    if (model is None) == (preset is None):
        raise InputError("describe takes a model directory or --preset, one of the two")
    config = (
        TransformerConfig.preset(preset, vocab_size=vocab_size)
        if preset is not None
        else read_config(Path(str(model)) / CONFIG_FILE)
    )
    with torch.device("meta"):  # shapes are enough
        described = Transformer(config)
    typer.echo(described.describe())
