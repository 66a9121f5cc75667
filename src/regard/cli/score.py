"""`regard score`: log-probabilities of given translations."""

import sys
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

_CHUNK = 1024


def score(
    model: Annotated[str, typer.Option(help="A model directory, or the name of a model in the package.")] = "de-en",
    to: Annotated[str | None, typer.Option(help="The language that the targets are in.")] = None,
    source: Annotated[
        Path | None, typer.Option("--input", "-i", help="Sources and targets, a tab between; standard input without.")
    ] = None,
) -> None:
    """Print the log-probability of each given translation, and its score: log P / length^α."""
    from regard.cli.lines import input_lines, output_line
    from regard.data.corpora import read_lines
    from regard.errors import DataError
    from regard.pipelines import load

    pipeline = load(model, task="translation", precision="float")
    pipeline.check(to, {})
    lines = enumerate(input_lines() if source is None else read_lines(source), 1)
    while chunk := list(islice(lines, _CHUNK)):
        pairs = [(number, *line.partition("\t")) for number, line in chunk]
        for number, _, tab, target in pairs:
            if not tab or "\t" in target:
                raise DataError(f"{source or 'standard input'}, line {number} is not a source and a target with a tab")
        for found in pipeline.score([pair[1] for pair in pairs], [pair[3] for pair in pairs], to=to):
            output_line(f"{found.log_probability:.4f}\t{found.score:.4f}")
        sys.stdout.buffer.flush()
