"""`regard.load`: a model directory loaded as the pipeline of its task."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, overload

from regard import models
from regard.acceleration.process import prepare_process
from regard.errors import ModelError
from regard.inference.pipeline import Pipeline as Pipeline
from regard.model import Transformer, TransformerConfig
from regard.model.directory import CONFIG_FILE
from regard.tasks.classification import Classifier
from regard.tasks.directory import read_tasks
from regard.tasks.extractive import AnswerExtractor
from regard.tasks.known import check_kind
from regard.tasks.language_modeling import TextGenerator
from regard.tasks.question_answering import QuestionAnswerer
from regard.tasks.summarization import Summarizer
from regard.tasks.task import Task
from regard.tasks.text2text import TextToText
from regard.tasks.translation import Translator

PIPELINES: dict[str, type[Pipeline]] = {
    cls.kind: cls
    for cls in (Translator, Summarizer, QuestionAnswerer, AnswerExtractor, TextToText, Classifier, TextGenerator)
}
"""The pipeline class of each kind of task."""


@overload
def load(
    name: str | os.PathLike[str],
    *,
    task: Literal["translation"],
    precision: Literal["auto", "float", "int8"] = "auto",
    build: Callable[[TransformerConfig], Transformer] | None = None,
    device: str = "cpu",
) -> Translator: ...
@overload
def load(
    name: str | os.PathLike[str],
    *,
    task: str | Task | Sequence[str] | None = None,
    precision: Literal["auto", "float", "int8"] = "auto",
    build: Callable[[TransformerConfig], Transformer] | None = None,
    device: str = "cpu",
) -> Any: ...
def load(
    name: str | os.PathLike[str],
    *,
    task: str | Task | Sequence[str] | None = None,
    precision: Literal["auto", "float", "int8"] = "auto",
    build: Callable[[TransformerConfig], Transformer] | None = None,
    device: str = "cpu",
) -> Any:
    """Load a model, ready for its task: a directory, or the name of one that comes with the package.

    >>> import regard
    >>> regard.load("de-en").languages
    ['de', 'en']

    The result is the pipeline of the model's task, a `Translator` for translation. `task` is the kind that is needed,
    such as "translation", or several that will do: a model of several tasks has its first unless one is named, and a
    model of others is refused. A model of a task of your own is loaded with that `Task`. `precision` is "float" for the
    weights as they are, "int8" for rounded ones, "auto" for what is faster on this machine. `build` is the function
    from a config to a model that was given to `regard.train`, if one was. `device` is "cpu", "cuda", "mps", or "auto"
    for a GPU if there is one.
    """
    prepare_process()
    path = models.find(name)
    chosen = _chosen_task(path, task)
    return PIPELINES.get(chosen.kind, TextToText).load(path, precision, build, device, chosen)


def _chosen_task(path: Path, task: str | Task | Sequence[str] | None) -> Task:
    """Return the task that a model is loaded for: its first, or its first of the kinds that will do."""
    kinds = (task,) if isinstance(task, str) else () if isinstance(task, Task) else tuple(task or ())
    for kind in kinds:
        check_kind(kind)
    own = [task] if isinstance(task, Task) else []
    tasks = read_tasks(path, own)
    requested = [task.kind for task in own] or kinds
    found = next((one for one in tasks if not requested or one.kind in requested), None)
    if found is None:
        if not (path / CONFIG_FILE).exists():
            raise ModelError(f"{path} has no {CONFIG_FILE}: it is not the directory of a model")
        there = " and ".join(_with_verb(one.kind) for one in tasks)
        raise ModelError(f"{path} is for {there}, not {' or '.join(requested)}")
    return found


def _with_verb(kind: str) -> str:
    return f"{kind} (regard {PIPELINES[kind].verb})" if kind in PIPELINES else kind
