"""`regard translate`: text in, text out, a line for a line."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.option_groups import with_option_groups
from regard.cli.outputs import Format
from regard.cli.runtime import Runtime
from regard.cli.search_options import SearchOptions
from regard.cli.text_jobs import FileJob, Output, TextJob, stream_lines
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.tasks.translation import Translator


@dataclass(frozen=True)
class TranslationOutput(Output):
    """What is written for a line, and how."""

    align: Annotated[bool, typer.Option("--align", help="Add the alignment (with jsonl).")] = False
    picture: Annotated[Path | None, typer.Option(help="File for a plot of attention weights.")] = None


@dataclass(frozen=True)
class WordConstraints:
    """Words that must come in each translation, and words that must not."""

    require: Annotated[list[str] | None, typer.Option("--constraint", help="Required phrase (repeatable).")] = None
    forbid: Annotated[list[str] | None, typer.Option(help="Forbidden phrase (repeatable).")] = None
    prefix: Annotated[str, typer.Option(help="Start of each translation.")] = ""

    def options(self) -> dict[str, Any]:
        """Return them as `Translator.translate` takes them."""
        return {"require": self.require or [], "forbid": self.forbid or [], "prefix": self.prefix}


@with_option_groups
def translate(
    *,
    text: Annotated[list[str] | None, typer.Argument(help="Texts; without any, lines of standard input.")] = None,
    model: Annotated[str, typer.Option(help="Model directory or packaged model.")] = "de-en",
    to: Annotated[str | None, typer.Option(help="Target language (multilingual models).")] = None,
    output: TranslationOutput,
    words: WordConstraints,
    search: SearchOptions,
    job: FileJob,
    runtime: Runtime,
) -> None:
    """Translate texts. Lines come out in order, one for one, blank for blank.

    Search and sampling options that are not given are the model's own (generation.json).
    """
    _check_output(text, output, words)
    output.check(search, job)
    job.check(text)
    from regard.memory import keep_memory

    keep_memory()
    pipeline: Translator = runtime.load(model, "translation")
    pipeline.check(to, search, **words.options())
    options = {"to": to, **words.options(), "align": output.align, **search}
    if output.picture is not None:
        _draw(pipeline, text or [], options, output.picture)
    elif output.stream:
        stream_lines(text, job.source, lambda line: pipeline.stream(line, to=to, **search))
    else:
        TextJob(
            run=lambda lines: pipeline.translate(lines, **options),
            form=output.form,
            identity=lambda: {"options": options, "model": pipeline.identity},
        ).start(text, job)


def _check_output(text: list[str] | None, output: TranslationOutput, words: WordConstraints) -> None:
    """Raise an `InputError` where what is to be written does not go together."""
    if output.picture is not None and (not text or len(text) != 1 or output.form != Format.text or output.stream):
        raise InputError("--picture draws one text, given on the command line, without --format and --stream")
    if output.align and output.form != Format.jsonl:
        raise InputError("--align needs --format jsonl, which has a place for it")
    if output.stream and any(words.options().values()):
        raise InputError("--stream shows plain text as it settles: no constraints")


def _draw(pipeline: "Translator", text: list[str], options: dict[str, Any], picture: Path) -> None:
    from regard.inspection import draw_attention

    made = pipeline.translate(text[0], **options)
    draw_attention(pipeline.attention(text[0], made.text, to=options["to"]), picture)
    typer.echo(made.text)
