"""`regard data`: corpora by name, splits, and summaries of similar documents."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from regard.data.noise import Pair
    from regard.data.similarity import SimilarDocuments

app = typer.Typer(
    help="Download corpora by name, split a table or JSON lines into training, validation and test data, and put "
    "summaries of similar documents before documents.",
    no_args_is_help=True,
)


@app.command("list")
def list_corpora() -> None:
    """List the corpora that can be downloaded."""
    from regard.data.catalog import CATALOG

    for corpus in CATALOG:
        typer.echo(f"{corpus.name}\n  {corpus.about}\n  License: {corpus.license}")


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="The corpus; `regard data list` says which there are.")],
    out: Annotated[Path | None, typer.Option(help="Where it goes; data/NAME unless given.")] = None,
    source: Annotated[Path | None, typer.Option("--from", help="Take it from this directory, not the network.")] = None,
) -> None:
    """Download a corpus and check it by its checksum; the same command resumes a stopped download."""
    from regard.data.catalog import published
    from regard.data.downloads import get_corpus

    corpus = published(name)
    directory = Path("data") / name if out is None else out
    get_corpus(corpus, directory, source=source, tell=lambda text: typer.echo(text, err=True))
    typer.echo(f"{corpus.about}\nLicense: {corpus.license}", err=True)
    typer.echo(str(directory))


@app.command()
def split(
    table: Annotated[
        Path, typer.Argument(help="Pairs in two columns, separated by a tab, or JSON lines; plain or gzip.")
    ],
    out: Annotated[Path, typer.Option(help="The directory for train.tsv, valid.tsv and test.tsv (or .jsonl).")],
    fields: Annotated[
        str | None, typer.Option(help="The two fields of JSON lines, such as document,summary; lines stay as they are.")
    ] = None,
    valid: Annotated[int, typer.Option(min=0, help="How many pairs for validation.")] = 2000,
    test: Annotated[int, typer.Option(min=0, help="How many pairs for testing.")] = 2000,
) -> None:
    """Clean pairs and split them, so that neither side of a test pair is seen in training."""
    from regard.data import TabSeparated
    from regard.data.splits import PARTS, Split, split_documents, split_pairs, write_split
    from regard.errors import InputError
    from regard.files import real_path

    suffix = "tsv" if fields is None else "jsonl"
    if fields is None and ".jsonl" in table.suffixes:
        raise InputError(f"{table} has JSON lines; --fields names their two fields, such as document,summary")
    if real_path(table) in {real_path(out / f"{part}.{suffix}") for part in PARTS}:
        raise InputError(f"{table} is one of the files that its parts would be written to; choose another --out")
    found: Split[Any]
    if fields is None:
        found = split_pairs(TabSeparated(path=table).pairs(), valid=valid, test=test)
    else:
        found = split_documents(_lines_with_pairs(table, fields), valid=valid, test=test)
    for path, count in write_split(found, out, suffix).items():  # type: ignore[misc]
        typer.echo(f"{path}: {count:,} pairs", err=True)
    typer.echo(
        f"left out: {found.unfit:,} unfit, {found.repeated:,} repeated, "
        f"{found.set_aside:,} that share a sentence with a pair of the validation or test part",
        err=True,
    )


@app.command()
def similar(
    known: Annotated[Path, typer.Argument(help="JSON lines: the known documents with their summaries.")],
    data: Annotated[
        Path | None, typer.Argument(help="JSON lines; without a file, standard input is one document.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Output file; standard output unless given.")] = None,
    fields: Annotated[str, typer.Option(help="The fields of the document and the summary.")] = "document,summary",
    count: Annotated[int, typer.Option(min=1, help="How many summaries to put before a document.")] = 3,
) -> None:
    """Put the summaries of the most similar known documents before each document, for a model to read.

    A document is not compared with itself: the data may be the known documents.
    """
    from regard.cli.lines import output_line, whole_input
    from regard.cli.progress import progress
    from regard.data import JsonLines
    from regard.data.similarity import SimilarDocuments
    from regard.errors import DataError, InputError
    from regard.files import real_path, replaced_file

    document, summary = _two_fields(fields)
    if out is not None and real_path(out) in {real_path(known), real_path(data or known)}:
        raise InputError(f"{out} is one of the files that are read; choose another --out")
    pairs = list(JsonLines(path=known, source_field=document, target_field=summary).read())
    if not any(text.strip() for _, text in pairs):
        raise DataError(f"{known} has no documents with summaries, which others could be similar to")
    index = SimilarDocuments(pairs)
    lines = (
        iter([index.before(" ".join(whole_input("a document").split()), count)])
        if data is None
        else _with_similar(data, document, index, count)
    )
    if out is None:
        for line in lines:
            output_line(line)
        return
    with replaced_file(out) as fresh, fresh.open("w", encoding="utf-8") as file, progress(None) as counter:
        for line in lines:
            file.write(f"{line}\n")
            counter.by(1)


def _with_similar(data: Path, field: str, index: "SimilarDocuments", count: int) -> Iterator[str]:
    """Return the lines of a file with the summaries of similar documents before those in it; blank ones stay so."""
    from regard.cli.outputs import json_line
    from regard.data import JsonLines
    from regard.data.reading import check_read_twice, read_lines

    check_read_twice(data)
    examples = JsonLines(path=data, fields={"source": field}).examples(("source",))
    for line, example in zip(read_lines(data), examples, strict=True):
        document = example["source"]
        yield json_line(json.loads(line) | {field: index.before(document, count) if document.strip() else document})


def _lines_with_pairs(path: Path, fields: str) -> Iterator[tuple[str, "Pair"]]:
    """Return each line of a file of JSON lines with the texts of two of its fields."""
    from regard.data import JsonLines
    from regard.data.reading import check_read_twice, read_lines

    check_read_twice(path)
    document, summary = _two_fields(fields)
    corpus = JsonLines(path=path, source_field=document, target_field=summary)
    return zip(read_lines(path), corpus.read(), strict=True)


def _two_fields(fields: str) -> tuple[str, str]:
    """Return the names of the document and of the summary."""
    from regard.errors import InputError

    names = [name.strip() for name in fields.split(",")]
    if len(names) != 2 or not all(names) or names[0] == names[1]:
        raise InputError(f"--fields is {fields!r}; two fields, such as document,summary, were expected")
    return names[0], names[1]
