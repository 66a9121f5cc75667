"""`regard tokenizer`: learn a vocabulary, and see what it does to a text."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.lines import input_lines, output_line
from regard.errors import DataError, InputError

if TYPE_CHECKING:
    from regard.data import Tokenizer

app = typer.Typer(help="Learn a vocabulary from text; split text into tokens and join them again.")


class Kind(StrEnum):
    """The kinds of tokenizer."""

    bpe = "bpe"
    unigram = "unigram"
    words = "words"


_Tokenizer = Annotated[Path, typer.Argument(help="A tokenizer.json, or a directory that holds one.")]


@app.command()
def train(
    texts: Annotated[list[Path], typer.Argument(help="Text files, plain or gzip, one sentence a line.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The tokenizer.json to write.")],
    vocab_size: Annotated[int, typer.Option(help="How many tokens, with special ones and bytes.")] = 8000,
    kind: Annotated[Kind, typer.Option(help="Words takes text that is already cut, with @@ inside words.")] = Kind.bpe,
    tag: Annotated[list[str] | None, typer.Option(help="A further special token, such as <2de>.")] = None,
    split_punctuation: Annotated[
        bool, typer.Option("--split-punctuation", help="Keep punctuation marks apart from words.")
    ] = False,
) -> None:
    """Learn a vocabulary from text files."""
    from itertools import chain

    from regard.data import Tokenizer
    from regard.data.corpora import read_lines

    if output.exists():
        raise InputError(f"{output} already exists; choose a new name, so that nothing is overwritten")
    lines = chain.from_iterable(read_lines(path) for path in texts)
    tokenizer = Tokenizer.train(
        lines, vocab_size=vocab_size, kind=kind.value, tags=tag or (), split_punctuation=split_punctuation
    )
    tokenizer.save(output)
    typer.echo(f"{output}: {kind.value}, {tokenizer.vocab_size:,} tokens", err=True)


@app.command()
def encode(tokenizer: _Tokenizer) -> None:
    """Split each line of standard input into tokens, separated by spaces."""
    loaded = _load(tokenizer)
    for line in input_lines():
        output_line(" ".join(loaded.token(number) for number in loaded.encode(line)))


@app.command()
def decode(tokenizer: _Tokenizer) -> None:
    """Join the tokens of each line of standard input into text."""
    loaded = _load(tokenizer)
    for number, line in enumerate(input_lines(), 1):
        try:
            tokens = [loaded.number(piece) for piece in line.split(" ") if piece]
        except InputError as error:
            raise DataError(f"standard input, line {number}: {error}") from None
        output_line(loaded.decode(tokens))


def _load(path: Path) -> "Tokenizer":
    from regard.data import Tokenizer

    return Tokenizer.load(path / "tokenizer.json" if path.is_dir() else path)
