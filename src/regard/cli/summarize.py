"""`regard summarize`: a document in, a summary out."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.option_groups import with_option_groups
from regard.cli.runtime import Runtime
from regard.cli.search_options import SearchOptions
from regard.cli.text_jobs import FileJob, Output, TextJob, stream_lines

if TYPE_CHECKING:
    from regard.tasks.summarization import Summarizer


@with_option_groups
def summarize(
    *,
    text: Annotated[
        list[str] | None, typer.Argument(help="Documents; without any, all of standard input is one.")
    ] = None,
    model: Annotated[str, typer.Option(help="Model directory or packaged model.")] = "titles",
    output: Output,
    search: SearchOptions,
    job: FileJob,
    runtime: Runtime,
) -> None:
    """Summarize documents. A file given by --input has a document on each line, blank for blank.

    Search and sampling options that are not given are the model's own (generation.json).
    """
    output.check(search, job)
    job.check(text)
    from regard.memory import keep_memory
    from regard.tasks.summarization import check_documents

    keep_memory()
    pipeline: Summarizer = runtime.load(model, "summarization")
    pipeline.with_changes(search)
    check_documents(text or [])
    if not text and job.source is None:
        from regard.cli.lines import whole_input

        text = [whole_input("a document")]
    if output.stream:
        stream_lines(text, job.source, lambda line: pipeline.stream(line, **search))
    else:
        TextJob(
            run=lambda lines: pipeline.generate(lines, **search),
            form=output.form,
            identity=lambda: {"options": search, "model": pipeline.identity},
        ).start(text, job)
