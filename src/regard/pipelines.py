"""A model directory put to work, by the pipeline of its task."""

import os
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from regard import models
from regard.acceleration.process import prepare_process
from regard.errors import InputError, ModelError
from regard.inference.pipeline import Pipeline as Pipeline
from regard.model import Transformer, TransformerConfig
from regard.tasks.directory import read_tasks
from regard.tasks.translation import Translator

_P = TypeVar("_P", bound=Pipeline)

PIPELINES: dict[str, type[Pipeline]] = {cls.kind: cls for cls in (Translator, Pipeline)}
"""The pipeline class of each kind of task."""


def register_pipeline(cls: type[_P]) -> type[_P]:
    """Have `load` use this class for models of its kind of task."""
    PIPELINES[cls.kind] = cls
    return cls


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
    task: str | Sequence[str] | None = None,
    precision: Literal["auto", "float", "int8"] = "auto",
    build: Callable[[TransformerConfig], Transformer] | None = None,
    device: str = "cpu",
) -> Any: ...
def load(
    name: str | os.PathLike[str],
    *,
    task: str | Sequence[str] | None = None,
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
    model of others is refused. `precision` is "float" for the weights as they are, "int8" for rounded ones, "auto" for
    what is faster on this machine. `build` is the function from a config to a model that was given to `regard.train`,
    if one was. `device` is "cpu", "cuda", "mps", or "auto" for a GPU if there is one.
    """
    kinds = (task,) if isinstance(task, str) else tuple(task or ())
    _check_kinds(kinds)
    prepare_process()
    path = models.find(name)
    table = _task_table(path, kinds)
    return PIPELINES[table["kind"]].load(path, precision, build, device, table)


def _check_kinds(kinds: Sequence[str]) -> None:
    for kind in kinds:
        if kind not in PIPELINES:
            near = get_close_matches(str(kind), PIPELINES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it is one of {', '.join(sorted(PIPELINES))}"
            raise InputError(f"task {kind!r} is not known; {hint}")


def _task_table(path: Path, kinds: Sequence[str]) -> dict[str, Any]:
    """Return the table of the task that a model is loaded for: its first, or its first of these kinds."""
    tables = read_tasks(path)
    table = next((table for table in tables if not kinds or table["kind"] in kinds), None)
    if table is None:
        found = " and ".join(dict.fromkeys(_with_verb(table["kind"]) for table in tables))
        raise ModelError(f"{path} is for {found}, not {' or '.join(kinds)}")
    if table["kind"] not in PIPELINES:
        raise ModelError(f"{path} is for {table['kind']}, which is not among {', '.join(sorted(PIPELINES))}")
    return table


def _with_verb(kind: str) -> str:
    return f"{kind} (regard {PIPELINES[kind].verb})" if kind in PIPELINES else kind
