"""The tasks that regard knows, by their kinds."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BeforeValidator, Discriminator, SerializeAsAny

from regard.errors import InputError, shown
from regard.tasks.classification import ClassificationTask
from regard.tasks.extractive import ExtractiveTask
from regard.tasks.language_modeling import LanguageModelingTask
from regard.tasks.question_answering import QuestionAnsweringTask
from regard.tasks.summarization import SummarizationTask
from regard.tasks.task import Task
from regard.tasks.text2text import TextToTextTask
from regard.tasks.translation import TranslationTask

KnownTask = (
    TranslationTask
    | SummarizationTask
    | QuestionAnsweringTask
    | ExtractiveTask
    | TextToTextTask
    | ClassificationTask
    | LanguageModelingTask
)


def kinds() -> list[str]:
    """Return the kinds of all known tasks."""
    return [task.model_fields["kind"].default for task in get_args(KnownTask)]


def check_kind(kind: object) -> None:
    """Raise an `InputError` for a kind of task that is not known, with the nearest that is."""
    if kind not in kinds():
        near = get_close_matches(str(kind), kinds(), n=1)
        hint = f"did you mean {near[0]}?" if near else f"it is one of {', '.join(kinds())}"
        raise InputError(f"task {shown(kind)} is not known; {hint}")


def _as_list(value: Any) -> Any:
    """Return tasks as a list of tables: "summarization" is short for `[{kind = "summarization"}]`."""
    several = value if isinstance(value, list | tuple) else [value]
    tables = [{"kind": one} if isinstance(one, str) else one for one in several]
    for table in tables:
        if isinstance(table, dict) and isinstance(table.get("kind"), str):
            check_kind(table["kind"])
    return tables


def checked_tasks(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Return the tasks of one model, with tags if there are several; raise an `InputError` where they do not fit."""
    kinds = [task.kind for task in tasks]
    if not tasks or len(set(kinds)) < len(kinds):
        raise InputError(f"task names {', '.join(kinds) or 'nothing'}; a model has one task, or several different ones")
    if len(tasks) == 1:
        return tuple(tasks)
    for task in tasks:
        if task.shape != "encoder-decoder":
            raise InputError(f"{task.kind} needs a model that is {task.shape}; it cannot be one of several tasks")
    # Translation has tags of its own, one for each language.
    return tuple(
        task if task.tag or task.kind == "translation" else task.model_copy(update={"tag": f"<{task.kind}>"})
        for task in tasks
    )


Tasks = Annotated[
    tuple[SerializeAsAny[Annotated[KnownTask, Discriminator("kind")]], ...],
    BeforeValidator(_as_list),
    AfterValidator(checked_tasks),
]
"""The tasks of a run: the name of one, its table, or a list of them. In Python, `regard.train` puts others in."""
