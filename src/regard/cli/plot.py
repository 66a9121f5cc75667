"""`regard plot`: the curves of a run."""

from pathlib import Path
from typing import Annotated

import typer


def plot(
    directory: Annotated[Path, typer.Argument(help="The directory of a run.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .png, .svg or .pdf; curves.png in the run unless given.")
    ] = None,
) -> None:
    """Draw the loss, the validation scores, the learning rate and the speed of a run."""
    from regard.training.curves import draw_curves

    path = directory / "curves.png" if output is None else output
    draw_curves(directory, path)
    typer.echo(str(path))
