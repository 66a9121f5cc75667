"""The command-line application."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from regard import __version__
from regard.cli.answer import answer
from regard.cli.average import average
from regard.cli.classify import classify
from regard.cli.convert import convert
from regard.cli.data import app as data
from regard.cli.describe import describe
from regard.cli.doctor import doctor
from regard.cli.evaluate import evaluate
from regard.cli.explain import explain
from regard.cli.export import export
from regard.cli.generate import generate
from regard.cli.interrupts import OutputClosed, is_closed_pipe
from regard.cli.plot import plot
from regard.cli.reproduce import reproduce
from regard.cli.score import score
from regard.cli.shortlist import shortlist
from regard.cli.summarize import summarize
from regard.cli.tokenizer import app as tokenizer
from regard.cli.train import train
from regard.cli.translate import translate
from regard.errors import RegardError


class _Verbs(TyperGroup):
    """The verbs; one whose output is not read any more is ended without an error, where typer would exit with 1."""

    def invoke(self, ctx: Any) -> Any:
        """Call a verb."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise (OutputClosed() if is_closed_pipe(1) else RegardError(str(error))) from None


app = typer.Typer(
    cls=_Verbs,
    name="regard",
    help="A Transformer that people can read, train, look inside and put to work.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(translate)
app.command()(summarize)
app.command()(answer)
app.command()(classify)
app.command()(generate)
app.command()(train)
app.command()(evaluate)
app.command()(score)
app.command()(average)
app.command()(plot)
app.command()(reproduce)
app.command()(doctor)
app.add_typer(data, name="data")
app.command()(explain)
app.command()(describe)
app.command()(convert)
app.command()(export)
app.command()(shortlist)
app.add_typer(tokenizer, name="tokenizer")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...
