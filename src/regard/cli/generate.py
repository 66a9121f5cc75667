"""`regard generate`: what a text-to-text model writes for each text, or a language model after it."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.option_groups import with_option_groups
from regard.cli.runtime import Runtime
from regard.cli.search_options import SearchOptions
from regard.cli.text_jobs import FileJob, Output, TextJob, stream_lines

if TYPE_CHECKING:
    from regard.inference.pipeline import Pipeline

_KINDS = ("text2text", "language-modeling")


@with_option_groups
def generate(
    *,
    text: Annotated[list[str] | None, typer.Argument(help="Texts; without any, lines of standard input.")] = None,
    model: Annotated[str, typer.Option(help="Model directory.")],
    output: Output,
    search: SearchOptions,
    job: FileJob,
    runtime: Runtime,
) -> None:
    """Write the target of each text, or go on with it (language models). Lines come out in order, one for one.

    Search and sampling options that are not given are the model's own (generation.json).
    """
    output.check(search, job)
    job.check(text)
    from regard.memory import keep_memory

    keep_memory()
    pipeline: Pipeline = runtime.load(model, _KINDS)
    pipeline.with_changes(search)
    if output.stream:
        stream_lines(text, job.source, lambda line: pipeline.stream(line, **search))
    else:
        TextJob(
            run=lambda lines: pipeline.generate(lines, **search),
            form=output.form,
            identity=lambda: {"options": search, "model": pipeline.identity},
            blank=("text", "score", "tokens"),
        ).start(text, job)
