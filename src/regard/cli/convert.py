"""`regard convert`: bring a model from elsewhere."""

from pathlib import Path
from typing import Annotated

import typer


def convert(
    source: Annotated[Path, typer.Argument(help="A Hugging Face directory: config.json and model.safetensors.")],
    target: Annotated[Path, typer.Argument(help="The model directory to write.")],
) -> None:
    """Turn a Hugging Face Marian, BART or T5 model into a model directory that computes the same."""
    from regard.errors import ModelError
    from regard.model.convert import read_huggingface_directory

    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ModelError(f"{target} already exists; choose a new directory, so that nothing is overwritten")
    model = read_huggingface_directory(source)
    model.save(target)
    count = sum(parameter.numel() for parameter in model.parameters())
    typer.echo(f"{target}: {model.config.kind}, {count:,} parameters", err=True)
