"""`regard answer`: questions about a text."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.option_groups import with_option_groups
from regard.cli.outputs import Format, Result
from regard.cli.runtime import Runtime
from regard.cli.search_options import SearchOptions, option_name
from regard.cli.text_jobs import FileJob, TextJob
from regard.errors import DataError, InputError

_QUESTIONS = 100  # of a SQuAD file that are answered together; what a stop can cost
_KINDS = ("question-answering", "extractive-question-answering")


@dataclass(frozen=True)
class Contexts:
    """Where the texts are that questions are about."""

    context: Annotated[Path | None, typer.Option("--context", "-c", help="File with the text of all questions.")] = None
    squad: Annotated[Path | None, typer.Option(help="SQuAD file; its questions are answered, by their ids.")] = None


@with_option_groups
def answer(
    *,
    question: Annotated[
        list[str] | None, typer.Argument(help="Questions; without any, lines of standard input.")
    ] = None,
    model: Annotated[str, typer.Option(help="Model directory or packaged model.")] = "stories",
    contexts: Contexts,
    threshold: Annotated[float | None, typer.Option(help="Margin over no answer, in logits (extractive).")] = None,
    form: Annotated[Format, typer.Option("--format", help="Format of a line of output.")] = Format.text,
    search: SearchOptions,
    job: FileJob,
    runtime: Runtime,
) -> None:
    """Answer questions about the text in --context, one output line per question.

    A question without an answer gives a blank line. Without --context, each line of standard input or of --input is a
    JSON object with question and context.
    """
    _check(question, contexts, form, search, job)
    from regard.memory import keep_memory

    keep_memory()
    pipeline: Any = runtime.load(model, _KINDS)
    options = _options(pipeline, threshold, search)
    if contexts.squad is not None:
        _answer_squad(pipeline, contexts.squad, job.output, options)
        return
    context = None if contexts.context is None else _read_context(contexts.context)
    digest = None if context is None else hashlib.sha256(context.encode()).hexdigest()

    def run(lines: list[str]) -> Sequence[Result]:
        pairs = [(line, context) if context is not None else _pair(line) for line in lines]
        found: Sequence[Result] = pipeline.answer([pair[0] for pair in pairs], [pair[1] for pair in pairs], **options)
        return found

    TextJob(
        run=run,
        form=form,
        identity=lambda: {"options": options, "context": digest, "model": pipeline.identity},
        blank=("text", "score", "start", "end") if pipeline.shape == "encoder-only" else ("text", "score", "tokens"),
    ).start(question, job)


def _check(question: list[str] | None, contexts: Contexts, form: Format, search: dict[str, Any], job: FileJob) -> None:
    if contexts.squad is not None:
        if question or contexts.context is not None or job.source is not None or job.shard is not None:
            raise InputError("--squad has questions and contexts; it goes without others and without --input")
        if form != Format.text:
            raise InputError("the answers to --squad are a JSON object by ids; leave --format out")
        if search.get("n_best", 1) > 1:
            raise InputError("the answers to --squad are one for each id; leave --n-best out")
        return
    job.check(question)
    if question and contexts.context is None:
        raise InputError("a question needs a text to find the answer in: --context FILE")
    if form == Format.text and search.get("n_best", 1) > 1:
        raise InputError(
            f"--n-best {search['n_best']} needs --format tsv or jsonl: in text, each question has one line"
        )


def _options(pipeline: Any, threshold: float | None, search: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a model that writes answers, or of one that finds them."""
    if pipeline.shape == "encoder-only":
        refused = [option_name(name) for name in search if name != "n_best"]
        if refused:
            raise InputError(f"{refused[0]} is for models that write; this one finds answers in the text")
        return {**search, "threshold": threshold}
    if threshold is not None:
        raise InputError("--threshold is for models that find answers in the text; this one writes them")
    pipeline.with_changes(search)  # refuses what this model cannot do, before the first question
    return search


def _read_context(path: Path) -> str:
    from regard.data.reading import read_text

    text = read_text(path)
    if not text.strip():
        raise DataError(f"{path} is empty; there is no text to find answers in")
    return text


def _pair(line: str) -> tuple[str, str]:
    """Return the question and the context of a line of JSON."""
    from regard.data.reading import parsed_json

    try:
        content = parsed_json(line, "the line")
    except DataError:
        raise DataError("it is not JSON; without --context a line has question and context") from None
    fields = []
    for field in ("question", "context"):
        value = content.get(field) if isinstance(content, dict) else None
        if not isinstance(value, str) or not value.strip():
            raise DataError(f"it has no field {field!r}, or no text in it")
        fields.append(value)
    return fields[0], fields[1]


def _answer_squad(pipeline: Any, path: Path, output: Path | None, options: dict[str, Any]) -> None:
    """Write the answers to all questions as a JSON object by their ids; one with an output is resumed."""
    from regard.cli.progress import progress
    from regard.data.squad import read_squad
    from regard.inference.jobs import resumable

    examples = read_squad(path).examples

    def lines(first: int) -> str:
        """Return the part of the object that has the answers to a hundred questions."""
        some = examples[first : first + _QUESTIONS]
        try:
            found = pipeline.answer([one.question for one in some], [one.context for one in some], **options)
        except InputError:
            _name_the_question(pipeline, some, path, options)
            raise
        for one, answer in zip(some, found, strict=True):
            for warning in answer.warnings():
                typer.echo(f"{path}, question {one.id!r}: {warning}", err=True)
        parts = [f" {json.dumps(one.id)}: {json.dumps(answer.text)}" for one, answer in zip(some, found, strict=True)]
        begin, end = "{\n" if first == 0 else ",\n", "\n}\n" if first + len(some) == len(examples) else ""
        return begin + ",\n".join(parts) + end

    if not examples:
        raise DataError(f"{path} has no questions")
    if output is None:
        with progress(len(examples)) as moved:
            for first in range(0, len(examples), _QUESTIONS):
                typer.echo(lines(first), nl=False)
                moved.by(min(_QUESTIONS, len(examples) - first))
        return
    if not path.is_file() or (output.exists() and output.samefile(path)):
        raise InputError(f"--output {output} needs another file to read the questions from; {path} is not one")
    job = {"squad": hashlib.sha256(path.read_bytes()).hexdigest(), "options": options, "model": pipeline.identity}
    with resumable(output, job) as file, progress(len(examples), done=file.done) as moved:
        for first in range(file.done, len(examples), _QUESTIONS):
            count = min(_QUESTIONS, len(examples) - first)
            file.add(lines(first), count)
            moved.by(count)


def _name_the_question(pipeline: Any, examples: Sequence[Any], path: Path, options: dict[str, Any]) -> None:
    """Raise a `DataError` that names the first question that cannot be answered."""
    for one in examples:
        try:
            pipeline.answer(one.question, one.context, **options)
        except InputError as error:
            raise DataError(f"{path}, question {one.id!r}: {error}") from None
