"""`regard translate`: text in, text out, a line for a line."""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.translations import Format, written
from regard.errors import DataError, InputError

if TYPE_CHECKING:
    from regard.pipelines import Pipeline
    from regard.tasks.translation import Translation

_CHUNK = 1000  # lines that are translated together; what a stop can cost
_SEARCH, _SAMPLING, _JOBS = "How it searches", "Draws at random", "Big jobs"


def translate(
    text: Annotated[list[str] | None, typer.Argument(help="Texts; standard input, line by line, without any.")] = None,
    model: Annotated[str, typer.Option(help="A model directory, or the name of a model in the package.")] = "de-en",
    to: Annotated[str | None, typer.Option(help="The language to write, for a model that knows several.")] = None,
    form: Annotated[Format, typer.Option("--format", help="What a line of output holds.")] = Format.text,
    align: Annotated[bool, typer.Option("--align", help="With jsonl: what each token looked at.")] = False,
    picture: Annotated[Path | None, typer.Option(help="Draw what each word of one text looked at.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Show words as soon as they are settled.")] = False,
    constraint: Annotated[list[str] | None, typer.Option(help="A word that must come. May be repeated.")] = None,
    forbid: Annotated[list[str] | None, typer.Option(help="A word that must not come. May be repeated.")] = None,
    prefix: Annotated[str, typer.Option(help="What each translation starts with.")] = "",
    beam: Annotated[int | None, typer.Option(help="Hypotheses at once.", rich_help_panel=_SEARCH)] = None,
    n_best: Annotated[int | None, typer.Option(help="Translations of a line.", rich_help_panel=_SEARCH)] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="The higher, the longer.", rich_help_panel=_SEARCH)
    ] = None,
    coverage_penalty: Annotated[
        float | None, typer.Option(help="What source words without attention cost.", rich_help_panel=_SEARCH)
    ] = None,
    groups: Annotated[int | None, typer.Option(help="Diverse groups of the beam.", rich_help_panel=_SEARCH)] = None,
    diversity: Annotated[
        float | None, typer.Option(help="How much groups keep apart.", rich_help_panel=_SEARCH)
    ] = None,
    early_stop: Annotated[
        bool | None,
        typer.Option("--early-stop/--full-stop", help="Stop at the likely best.", rich_help_panel=_SEARCH),
    ] = None,
    shortlist: Annotated[
        bool | None,
        typer.Option("--shortlist/--all-words", help="Only likely words: faster.", rich_help_panel=_SEARCH),
    ] = None,
    no_repeat: Annotated[
        int | None, typer.Option(help="No sequence of so many tokens twice.", rich_help_panel=_SEARCH)
    ] = None,
    min_length: Annotated[int | None, typer.Option(help="Tokens at least.", rich_help_panel=_SEARCH)] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw words.", rich_help_panel=_SAMPLING)] = False,
    temperature: Annotated[float | None, typer.Option(help="Above 1: bolder.", rich_help_panel=_SAMPLING)] = None,
    top_k: Annotated[int | None, typer.Option(help="From the k likeliest.", rich_help_panel=_SAMPLING)] = None,
    top_p: Annotated[float | None, typer.Option(help="From this much probability.", rich_help_panel=_SAMPLING)] = None,
    min_p: Annotated[float | None, typer.Option(help="Relative to the likeliest.", rich_help_panel=_SAMPLING)] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed, the same draws.", rich_help_panel=_SAMPLING)] = None,
    source: Annotated[
        Path | None, typer.Option("--input", "-i", help="A file of lines, plain or gzip.", rich_help_panel=_JOBS)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A file, there once it is whole; gone on with.", rich_help_panel=_JOBS),
    ] = None,
    shard: Annotated[
        str | None, typer.Option(help="i/n: the i-th of n parts of --input.", rich_help_panel=_JOBS)
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="As many as cores, else.", rich_help_panel=_JOBS)] = None,
    precision: Annotated[str, typer.Option(help="auto, float or int8.", rich_help_panel=_JOBS)] = "auto",
) -> None:
    """Translate texts. Lines come out in order, one for one, blank for blank."""
    given: dict[str, Any] = dict(
        beam=beam,
        n_best=n_best,
        length_penalty=length_penalty,
        coverage_penalty=coverage_penalty,
        groups=groups,
        diversity=diversity,
        early_stop=early_stop,
        shortlist=shortlist,
        no_repeat=no_repeat,
        min_length=min_length,
        sample=sample or None,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
    )
    settings = {name: value for name, value in given.items() if value is not None}
    wishes = {"require": constraint or [], "forbid": forbid or [], "prefix": prefix, "align": align}
    options = {"to": to, **wishes, **settings}
    if picture is not None and (text is None or len(text) != 1 or form != Format.text or stream):
        raise InputError("--picture draws one text, given on the command line")
    _check_together(text, form, stream, options, source, output, shard)
    from regard.memory import keep_memory

    keep_memory()
    from regard.pipelines import load

    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    pipeline = load(model, precision=_precision(precision))
    pipeline.check(to, settings)
    if picture is not None:
        _draw(pipeline, text or [], options, picture)
    elif stream:
        _stream(pipeline, text or _input_lines(source), to, settings)
    elif output is not None or shard is not None or source is not None:
        assert source is not None
        _translate_file(pipeline, options, form, source, output, shard or "1/1")
    else:
        at_once = 1 if text is None and sys.stdin.isatty() else _CHUNK
        _translate_lines(pipeline, options, form, text or _input_lines(None), at_once)


def _check_together(
    text: list[str] | None,
    form: Format,
    stream: bool,
    options: dict[str, Any],
    source: Path | None,
    output: Path | None,
    shard: str | None,
) -> None:
    """Raise an `InputError` where options do not fit together."""
    wanted = options.get("n_best", 1)
    given = set(options)
    for needed, names in (("sample", ("temperature", "top_k", "top_p", "min_p", "seed")), ("groups", ("diversity",))):
        for name in names:
            if name in given and needed not in given:
                raise InputError(f"--{name.replace('_', '-')} is for --{needed}, which is not asked for")
    for name in ("beam", "groups", "early_stop"):
        if name in given and "sample" in given:
            raise InputError(f"--{name.replace('_', '-')} is for a beam, and --sample draws at random; one of them")
    if text and source is not None:
        raise InputError("texts are given and --input too; one of them")
    if (output is not None or shard is not None) and source is None:
        raise InputError("--output and --shard are for a file: give --input, or send standard output to a file")
    if form == Format.text and wanted > 1:
        raise InputError(f"--n-best {wanted} needs --format tsv or jsonl: in text, a line stands for a line")
    if options["align"] and form != Format.jsonl:
        raise InputError("--align needs --format jsonl, which has a place for it")
    shown = options["require"] or options["forbid"] or options["prefix"] or form != Format.text or wanted > 1
    if stream and (shown or output is not None or shard is not None):
        raise InputError("--stream shows plain text as it settles: no constraints, formats or --output")


def _precision(name: str) -> Any:
    if name not in ("auto", "float", "int8"):
        raise InputError(f"precision is {name!r}; it is auto, float or int8")
    return name


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
    rest = iter(lines)
    while chunk := list(islice(rest, size)):
        yield chunk, pipeline.translate(chunk, **options)


def _report_cuts(made: list["Translation"], first: int) -> None:
    for number, translation in enumerate(made, first):
        if translation.cut:
            print(f"regard: line {number}: the translation had no more room and is not at its end", file=sys.stderr)
        for sentence in translation.untranslated:
            print(f"regard: line {number}: nothing was written for {sentence[:40]!r}", file=sys.stderr)
