"""`regard train`: from a run file to a model."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.training.callbacks import Callback


def train(
    run: Annotated[str, typer.Argument(help="A run file (TOML), or the name of a recipe such as dates.")],
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=V", help="Change a value of the run file; repeatable.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the model goes; runs/NAME unless given. What is there is resumed.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Train nothing; estimate size, memory and time from a few steps.")
    ] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write the numbers for TensorBoard, too.")] = False,
) -> None:
    """Train a model; the same command resumes a run that was stopped."""
    # Before torch allocates anything: memory that is kept is not faulted in again.
    from regard.memory import keep_memory

    keep_memory()
    from regard import recipes
    from regard.cli.display import display
    from regard.training import Run
    from regard.training import train as train_run

    path = recipes.find(run)
    loaded = Run.load(path, changes or ())
    if dry_run:
        from regard.training.forecast import forecast

        typer.echo(forecast(loaded).text())
        return
    directory = Path("runs") / path.stem if out is None else out
    with display() as shown:
        callback: Callback = shown
        if tensorboard and os.environ.get("RANK", "0") == "0":
            from regard.training.callbacks import CallbackList
            from regard.training.tensorboard import TensorBoard

            callback = CallbackList(shown, TensorBoard(directory / "tensorboard"))
        train_run(loaded, directory, callback=callback)
