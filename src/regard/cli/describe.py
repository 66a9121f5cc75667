"""`regard describe`: the shapes and parameters of a model."""

from typing import Annotated

import typer


def describe(
    model: Annotated[
        str | None, typer.Argument(help="A model directory, or the name of a model in the package.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="A preset in its place: tiny, small, base or big.")] = None,
    vocab_size: Annotated[int | None, typer.Option(help="The preset's vocabulary; 37,000 unless given.")] = None,
) -> None:
    """Print every symbol of a model, with its shape, its parameters and its letter in docs/notes.md."""
    import torch

    from regard import models
    from regard.errors import InputError
    from regard.model import Transformer, TransformerConfig
    from regard.model.directory import CONFIG_FILE, check_build, read_config, read_modules

    if vocab_size is not None and preset is None:
        raise InputError("--vocab-size is for a preset; a model has a vocabulary of its own")
    if model is not None and preset is None:
        directory = models.find(model)
        config = read_config(directory / CONFIG_FILE)
        check_build(directory, read_modules(directory / CONFIG_FILE), None)
    elif preset is not None and model is None:
        config = TransformerConfig.preset(preset, vocab_size=37_000 if vocab_size is None else vocab_size)
    else:
        raise InputError("describe takes a model or --preset: one of the two")
    with torch.device("meta"):  # shapes are enough
        described = Transformer(config)
    typer.echo(described.describe())
