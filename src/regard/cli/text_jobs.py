"""Lines in, results out, for every verb that works on texts: from the command line, standard input or big files."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.outputs import Blank, Format, Result, written
from regard.errors import DataError, InputError
from regard.inference.texts import on_one_line

CHUNK = 1000  # lines that are worked on together; what a stop can cost
_job_option = partial(typer.Option, rich_help_panel="Big jobs")

Run = Callable[[list[str]], Sequence[Result]]
"""Returns the results of lines, one for one."""


@dataclass(frozen=True)
class FileJob:
    """A file of lines to work on, into another or to standard output."""

    source: Annotated[Path | None, _job_option("--input", "-i", help="File of lines, plain or gzip.")] = None
    output: Annotated[
        Path | None, _job_option("--output", "-o", help="Output file; a job that was stopped is resumed.")
    ] = None
    shard: Annotated[str | None, _job_option(help="i/n: the i-th of n parts of --input.")] = None

    def check(self, texts: list[str] | None) -> None:
        """Raise an `InputError` where files do not go together with each other or with texts."""
        if texts and self.source is not None:
            raise InputError("give texts or --input, not both")
        if (self.output is not None or self.shard is not None) and self.source is None:
            raise InputError("--output and --shard are for a file: give --input, or send standard output to a file")


@dataclass(frozen=True)
class Output:
    """What is written for a line, and how."""

    form: Annotated[Format, typer.Option("--format", help="Format of a line of output.")] = Format.text
    stream: Annotated[bool, typer.Option("--stream", help="Print words as soon as they are final.")] = False

    def check(self, search: dict[str, Any], job: FileJob) -> None:
        """Raise an `InputError` where what is to be written does not go together."""
        n_best = search.get("n_best", 1)
        if self.form == Format.text and n_best > 1:
            raise InputError(f"--n-best {n_best} needs --format tsv or jsonl: text has one output line per input line")
        if self.stream and (self.form != Format.text or job.output is not None or job.shard is not None):
            raise InputError("--stream shows plain text as it settles: no formats and no --output")


@dataclass(frozen=True)
class TextJob:
    """What becomes of lines: how results are computed, and how they are written."""

    run: Run
    form: Format
    identity: Callable[[], dict[str, Any]]
    """Returns what tells this job from others, such as the model and the options: only the same job is resumed."""
    blank: Sequence[str] | None = None
    """The fields that JSON has, where blank lines stay blank without `run`."""

    def start(self, texts: list[str] | None, files: FileJob) -> None:
        """Work on texts of the command line, on a file, or else on lines of standard input."""
        if files.source is not None:
            self._work_on_file(files.source, files.output, files.shard or "1/1")
        elif texts:
            _warn_of_files(texts)
            replace(self, blank=None)._print(texts, CHUNK)
        else:
            self._print(input_of(None), 1 if sys.stdin.isatty() else CHUNK, "standard input, line")

    def _print(self, lines: Iterable[str], at_once: int, place: str | None = None, first: int = 1) -> None:
        """Work on lines; what becomes of them goes to standard output."""
        from regard.cli.progress import progress

        with progress(None) as moved:
            for chunk in _chunks(lines, at_once):
                sys.stdout.buffer.write(self._written(chunk, first + moved.done, place).encode())
                sys.stdout.buffer.flush()
                moved.by(len(chunk))

    def _work_on_file(self, source: Path, output: Path | None, shard: str) -> None:
        """From a file to a file that is resumed, or to standard output."""
        from regard.cli.progress import progress
        from regard.data.corpora import read_lines
        from regard.inference.jobs import Shard, count_lines, resumable

        lines, digest = count_lines(source)
        part = Shard.parse(shard).of(lines)
        if output is None:
            some = islice(read_lines(source), part.start, part.stop)
            self._print(some, CHUNK, f"{source}, line", first=part.start + 1)
            return
        if output.exists() and output.samefile(source):
            raise InputError(f"{output} is the input too; the output is another file")
        job = {"input": digest, "shard": shard, "format": self.form.value, **self.identity()}
        with resumable(output, job) as file, progress(len(part), done=file.done) as moved:
            for chunk in _chunks(islice(read_lines(source), part.start + file.done, part.stop), CHUNK):
                file.add(self._written(chunk, part.start + file.done + 1, f"{source}, line"), len(chunk))
                moved.by(len(chunk))
            if file.done != len(part):
                raise DataError(f"{source} has become shorter while it was read: {file.done} of {len(part)} lines")

    def _written(self, chunk: list[str], first: int, place: str | None) -> str:
        """Return the output of lines that begin with this number; what may be wrong goes to standard error."""
        worked_on = [at for at, line in enumerate(chunk) if line.strip() or self.blank is None]
        found = self._results({first + at: chunk[at] for at in worked_on}, place) if worked_on else []
        results: list[Result] = [Blank(self.blank or ())] * len(chunk)
        for at, result in zip(worked_on, found, strict=True):
            results[at] = result
        for number, result in enumerate(results, first):
            for warning in result.warnings():
                print(f"regard: line {number}: {warning}", file=sys.stderr)
        return "".join(written(line, result, self.form) for line, result in zip(chunk, results, strict=True))

    def _results(self, lines: dict[int, str], place: str | None) -> Sequence[Result]:
        """Return the results of lines, by their numbers; one that cannot be worked on is named by its place, if any."""
        try:
            return self.run(list(lines.values()))
        except (DataError, InputError):
            if place is None:
                raise
            for number, line in lines.items():
                try:
                    self.run([line])
                except (DataError, InputError) as error:
                    raise DataError(f"{place} {number}: {error}") from None
            raise


def stream_lines(texts: list[str] | None, source: Path | None, stream: Callable[[str], Iterable[str]]) -> None:
    """Print what becomes of texts, or of each line of a file or of standard input, piece by piece as it is there."""
    _warn_of_files(texts or [])
    for line in texts or input_of(source):
        for piece in stream(line) if texts or line.strip() else ():
            sys.stdout.buffer.write(on_one_line(piece).encode())
            sys.stdout.buffer.flush()
        sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()


def _warn_of_files(texts: list[str]) -> None:
    """Say where a text is the name of a file: it may have been meant as one."""
    for text in texts:
        with suppress(OSError, ValueError):  # too long for a name, or no name at all
            if Path(text).is_file():
                print(f"regard: {text} is a file; its name is read as a text (--input reads the file)", file=sys.stderr)


def input_of(source: Path | None) -> Iterator[str]:
    """Return the lines of a file, or of standard input."""
    from regard.cli.lines import input_lines
    from regard.data.corpora import read_lines

    return input_lines() if source is None else read_lines(source)


def _chunks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    from regard.memory import release_kept_memory

    rest = iter(lines)
    while chunk := list(islice(rest, size)):
        yield chunk
        if len(chunk) == CHUNK:
            release_kept_memory()
