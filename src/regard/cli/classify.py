"""`regard classify`: the label of each text."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.option_groups import with_option_groups
from regard.cli.outputs import Format
from regard.cli.runtime import Runtime
from regard.cli.text_jobs import FileJob, TextJob

if TYPE_CHECKING:
    from regard.tasks.classification import Classifier


@with_option_groups
def classify(
    *,
    text: Annotated[list[str] | None, typer.Argument(help="Texts; without any, lines of standard input.")] = None,
    model: Annotated[str, typer.Option(help="Model directory.")],
    form: Annotated[Format, typer.Option("--format", help="Format of a line of output.")] = Format.text,
    job: FileJob,
    runtime: Runtime,
) -> None:
    """Print the most probable label of each text, a line for a line; tsv has its probability, jsonl those of all."""
    job.check(text)
    from regard.memory import keep_memory

    keep_memory()
    pipeline: Classifier = runtime.load(model, "classification")
    TextJob(
        run=pipeline.classify,
        form=form,
        identity=lambda: {"model": pipeline.identity},
        blank=("label", "score", "probabilities"),
    ).start(text, job)
