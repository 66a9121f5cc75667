"""`regard average`: the mean of several models."""

from pathlib import Path
from typing import Annotated

import typer


def average(
    models: Annotated[list[Path], typer.Argument(help="Model directories; or one run, with --last or --best.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the mean goes.")],
    last: Annotated[int | None, typer.Option(help="The last N snapshots of the run.")] = None,
    best: Annotated[int | None, typer.Option(help="The N snapshots of the run that validated best.")] = None,
    half: Annotated[bool, typer.Option("--half", help="Write 16-bit floats: half the size.")] = False,
) -> None:
    """Average the weights of several models of one shape, or of the snapshots of a run."""
    from regard.errors import InputError
    from regard.training.averaging import chosen_snapshots, validation_values, write_average

    if output.exists():
        raise InputError(f"{output} already exists; choose a new name, so that nothing is overwritten")
    if last is not None or best is not None:
        if len(models) != 1 or (last is not None and best is not None):
            raise InputError("give one run, with either --last or --best")
        run = models[0]
        models = chosen_snapshots(run, best or last or 0, None if best is None else validation_values(run))
    else:
        run = models[0]
    write_average(models, output, tokenizers_of=run, half=half)
    typer.echo(f"{output}: the mean of {len(models)} models", err=True)
