"""`regard translate`: text in, text out, a line for a line."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.option_groups import with_option_groups
from regard.cli.runtime import Runtime
from regard.cli.search_options import SearchOptions
from regard.cli.translations import Format, written
from regard.errors import DataError, InputError

if TYPE_CHECKING:
    from regard.pipelines import Pipeline
    from regard.tasks.translation import Translation

_CHUNK = 1000  # lines that are translated together; what a stop can cost
_job_option = partial(typer.Option, rich_help_panel="Big jobs")


@dataclass(frozen=True)
class Output:
    """What is written for a line, and how."""

    form: Annotated[Format, typer.Option("--format", help="Format of a line of output.")] = Format.text
    align: Annotated[bool, typer.Option("--align", help="Add the alignment (with jsonl).")] = False
    picture: Annotated[Path | None, typer.Option(help="File for a plot of attention weights.")] = None
    stream: Annotated[bool, typer.Option("--stream", help="Print words as soon as they are final.")] = False


@dataclass(frozen=True)
class WordConstraints:
    """Words that must come in each translation, and words that must not."""

    require: Annotated[list[str] | None, typer.Option("--constraint", help="Required phrase (repeatable).")] = None
    forbid: Annotated[list[str] | None, typer.Option(help="Forbidden phrase (repeatable).")] = None
    prefix: Annotated[str, typer.Option(help="Start of each translation.")] = ""

    def options(self) -> dict[str, Any]:
        """Return them as `Pipeline.translate` takes them."""
        return {"require": self.require or [], "forbid": self.forbid or [], "prefix": self.prefix}


@dataclass(frozen=True)
class FileJob:
    """A file to translate, into another or to standard output."""

    source: Annotated[Path | None, _job_option("--input", "-i", help="File of lines, plain or gzip.")] = None
    output: Annotated[
        Path | None, _job_option("--output", "-o", help="Output file; a job that was stopped is resumed.")
    ] = None
    shard: Annotated[str | None, _job_option(help="i/n: the i-th of n parts of --input.")] = None


@with_option_groups
def translate(
    *,
    text: Annotated[list[str] | None, typer.Argument(help="Texts; without any, lines of standard input.")] = None,
    model: Annotated[str, typer.Option(help="Model directory or packaged model.")] = "de-en",
    to: Annotated[str | None, typer.Option(help="Target language (multilingual models).")] = None,
    output: Output,
    words: WordConstraints,
    search: SearchOptions,
    job: FileJob,
    runtime: Runtime,
) -> None:
    """Translate texts. Lines come out in order, one for one, blank for blank.

    Search and sampling options that are not given are the model's own (generation.json).
    """
    _check_output(text, output, words, search, job)
    _check_job(text, job)
    from regard.memory import keep_memory

    keep_memory()
    pipeline = runtime.load(model)
    pipeline.check(to, search)
    options = {"to": to, **words.options(), "align": output.align, **search}
    if output.picture is not None:
        _draw(pipeline, text or [], options, output.picture)
    elif output.stream:
        _stream(pipeline, text or _input_lines(job.source), to, search)
    elif job.source is not None:
        _translate_file(pipeline, options, output.form, job.source, job.output, job.shard or "1/1")
    else:
        at_once = 1 if text is None and sys.stdin.isatty() else _CHUNK
        _translate_lines(pipeline, options, output.form, text or _input_lines(None), at_once)


def _check_output(
    text: list[str] | None, output: Output, words: WordConstraints, search: dict[str, Any], job: FileJob
) -> None:
    """Raise an `InputError` where what is to be written does not go together."""
    n_best = search.get("n_best", 1)
    if output.picture is not None and (not text or len(text) != 1 or output.form != Format.text or output.stream):
        raise InputError("--picture draws one text, given on the command line")
    if output.form == Format.text and n_best > 1:
        raise InputError(f"--n-best {n_best} needs --format tsv or jsonl: in text, a line stands for a line")
    if output.align and output.form != Format.jsonl:
        raise InputError("--align needs --format jsonl, which has a place for it")
    shown = any(words.options().values()) or output.form != Format.text
    if output.stream and (shown or job.output is not None or job.shard is not None):
        raise InputError("--stream shows plain text as it settles: no constraints, formats or --output")


def _check_job(text: list[str] | None, job: FileJob) -> None:
    """Raise an `InputError` where files do not go together with each other or with texts."""
    if text and job.source is not None:
        raise InputError("texts are given and --input too; one of them")
    if (job.output is not None or job.shard is not None) and job.source is None:
        raise InputError("--output and --shard are for a file: give --input, or send standard output to a file")


def _input_lines(source: Path | None) -> Iterator[str]:
    from regard.cli.lines import input_lines
    from regard.data.corpora import read_lines

    return input_lines() if source is None else read_lines(source)


def _draw(pipeline: "Pipeline", text: list[str], options: dict[str, Any], picture: Path) -> None:
    from regard.inspection import draw_attention

    made = pipeline.translate(text[0], **options)
    draw_attention(pipeline.attention(text[0], made.text, to=options["to"]), picture)
    typer.echo(made.text)


def _stream(pipeline: "Pipeline", lines: Iterable[str], to: str | None, settings: dict[str, Any]) -> None:
    for line in lines:
        for piece in pipeline.stream(line, to=to, **settings):
            sys.stdout.buffer.write(piece.encode())
            sys.stdout.buffer.flush()
        sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()


def _translate_lines(
    pipeline: "Pipeline",
    options: dict[str, Any],
    form: Format,
    lines: Iterable[str],
    at_once: int,
    first: int = 1,
) -> None:
    """From standard input, or from the command line, to standard output."""
    from regard.cli.progress import progress

    with progress(None) as moved:
        for chunk, made in _chunks(pipeline, options, lines, at_once):
            _report_cuts(made, first=first + moved.done)
            sys.stdout.buffer.write("".join(map(written, chunk, made, [form] * len(chunk))).encode())
            sys.stdout.buffer.flush()
            moved.by(len(chunk))


def _translate_file(
    pipeline: "Pipeline",
    options: dict[str, Any],
    form: Format,
    source: Path,
    output: Path | None,
    shard: str,
) -> None:
    """From a file to a file that is resumed, or to standard output."""
    from regard.cli.progress import progress
    from regard.data.corpora import read_lines
    from regard.inference.jobs import Shard, count_lines, resumable

    lines, digest = count_lines(source)
    part = Shard.parse(shard).of(lines)
    if output is None:
        lines_of_part = islice(read_lines(source), part.start, part.stop)
        _translate_lines(pipeline, options, form, lines_of_part, _CHUNK, first=part.start + 1)
        return
    if output.exists() and output.samefile(source):
        raise InputError(f"{output} is the input too; the output is another file")
    identity = {"input": digest, "shard": shard, "format": form.value, "options": options, "model": pipeline.identity}
    with resumable(output, identity) as file, progress(len(part), done=file.done) as moved:
        left = islice(read_lines(source), part.start + file.done, part.stop)
        for chunk, made in _chunks(pipeline, options, left, _CHUNK):
            _report_cuts(made, first=part.start + file.done + 1)
            file.add("".join(map(written, chunk, made, [form] * len(chunk))), len(chunk))
            moved.by(len(chunk))
        if file.done != len(part):
            raise DataError(f"{source} has become shorter while it was read: {file.done} of {len(part)} lines")


def _chunks(
    pipeline: "Pipeline", options: dict[str, Any], lines: Iterable[str], size: int
) -> Iterator[tuple[list[str], list["Translation"]]]:
    from regard.memory import release_kept_memory

    rest = iter(lines)
    while chunk := list(islice(rest, size)):
        yield chunk, pipeline.translate(chunk, **options)
        if len(chunk) == _CHUNK:
            release_kept_memory()


def _report_cuts(made: list["Translation"], first: int) -> None:
    for number, translation in enumerate(made, first):
        if translation.cut:
            print(f"regard: line {number}: the translation had no more room and is not at its end", file=sys.stderr)
        for sentence in translation.untranslated:
            print(f"regard: line {number}: nothing was written for {sentence[:40]!r}", file=sys.stderr)
