"""`regard data`: corpora by name."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Corpora by name, with their licences.", no_args_is_help=True)


@app.command("list")
def list_corpora() -> None:
    """Say which corpora there are."""
    from regard.text.catalogue import CATALOGUE

    for corpus in CATALOGUE:
        typer.echo(f"{corpus.name}\n  {corpus.about}\n  Licence: {corpus.licence}")


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="The corpus; `regard data list` says which there are.")],
    out: Annotated[Path | None, typer.Option(help="Where it goes; data/NAME unless given.")] = None,
    source: Annotated[Path | None, typer.Option("--from", help="Take it from this directory, not the network.")] = None,
) -> None:
    """Bring a corpus to disk and check that it is the right one; a broken download is gone on with."""
    from regard.text.catalogue import published
    from regard.text.download import get_corpus

    corpus = published(name)
    directory = Path("data") / name if out is None else out
    get_corpus(corpus, directory, source=source, tell=lambda text: typer.echo(text, err=True))
    typer.echo(f"{corpus.about}\nLicence: {corpus.licence}", err=True)
    typer.echo(str(directory))
