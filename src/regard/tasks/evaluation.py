"""A model scored on examples of its task."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from regard.data.babi import Babi
from regard.data.corpora import Corpus, Example, JsonLines, TabSeparated
from regard.data.examples import Answer, FieldError, field_value
from regard.data.squad import Squad
from regard.errors import DataError, InputError
from regard.tasks.metrics import Score, score
from regard.tasks.task import Task

TEST_SET = "test.jsonl"
"""The test set that a model directory may hold, so that its scores can be checked without another file."""
_CHUNK = 128


class AnsweringPipeline(Protocol):
    """A pipeline that answers the examples of its task."""

    @property
    def task(self) -> Task:
        """The task."""

    def predictions(self, examples: Sequence[Example], **changes: Any) -> list[str]:
        """Return the answers to examples, as metrics compare them."""


def corpus_of(path: Path) -> Corpus:
    """Return the corpus of a file by its name: tab-separated, SQuAD's JSON, bAbI's text, or else JSON lines."""
    match path.name.removesuffix(".gz").rpartition(".")[2]:
        case "tsv":
            return TabSeparated(path=path)
        case "json":
            return Squad(path=path)
        case "txt":
            return Babi(path=path)
    return JsonLines(path=path)


def check_has_metrics(task: Task) -> None:
    """Raise an `InputError` where a task has no answers to score."""
    if not task.metrics:
        raise InputError(
            f"{task.kind} has no answers to score; `regard evaluate` prints its perplexity, of a run or with --data"
        )


def _checked(example: Example, number: int, task: Task) -> Example:
    """Return an example whose answers are `Answer`s; raise a `DataError` for one that the task cannot have."""
    for field in task.fields:
        if field not in example:
            raise DataError(f"example {number} has no field {field!r}")
    try:
        task.check_example(example)
    except DataError as error:
        raise DataError(f"example {number}: {error}") from None
    answers = example.get("answers")
    if answers is None or (isinstance(answers, list) and all(isinstance(answer, Answer) for answer in answers)):
        return example
    try:
        return {**example, "answers": field_value("answers", answers)}
    except FieldError as error:
        raise DataError(f"example {number}: answers {error}") from None


def evaluate_examples(
    pipeline: AnsweringPipeline,
    examples: Sequence[Example],
    *,
    bootstrap: int = 1000,
    advance: Callable[[int], None] = lambda count: None,
    **changes: Any,
) -> list[Score]:
    """Return the scores of a pipeline by all metrics of its task, with 95 % intervals by bootstrap."""
    task = pipeline.task
    check_has_metrics(task)
    if not examples:
        raise DataError("there are no examples to evaluate on")
    examples = [_checked(example, number, task) for number, example in enumerate(examples, 1)]
    answers: list[str] = []
    for first in range(0, len(examples), _CHUNK):
        some = examples[first : first + _CHUNK]
        answers += pipeline.predictions(some, **changes)
        advance(len(some))
    references = [task.references(example) for example in examples]
    return [score(metric, answers, references, bootstrap=bootstrap) for metric in task.metrics]
