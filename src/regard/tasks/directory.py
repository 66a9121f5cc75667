"""The tasks of a model directory: `task.json`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.configs import Config
from regard.errors import ConfigError, ModelError, shown
from regard.files import check_names, read_json, replaced_file
from regard.tasks.known import Tasks, kinds
from regard.tasks.task import Task
from regard.tasks.translation import TranslationTask

TASKS_FILE = "task.json"
_LARGEST = 1 << 20
DEFAULT_TASKS = (TranslationTask(),)
"""Those of a directory without the file: models were made for translation before there were other tasks."""


class _Tables(Config):
    """What the file holds, whatever the tasks are."""

    tasks: list[dict[str, Any]]


class _TaskFile(Config):
    """What the file holds where all tasks are regard's."""

    tasks: Tasks


def read_tasks(directory: Path, own: Sequence[Task] = ()) -> tuple[Task, ...]:
    """Read the tasks of a model; `own` are those that are not regard's, whose settings are in the file too."""
    path = directory / TASKS_FILE
    if not path.exists():
        return DEFAULT_TASKS
    content = read_json(path, largest=_LARGEST)
    check_names(content, path)
    try:
        tables = _Tables.model_validate(content).tasks
        classes = {task.kind: type(task) for task in own}
        for table in tables:
            cls, kind = table.pop("class", None), table.get("kind")
            if cls is not None and kind in list(kinds()) and kind not in classes:
                raise ModelError(f"{path}: the task was of the class {shown(cls)}; load it in Python with task=...")
        names = [kind for table in tables if isinstance(kind := table.get("kind"), str)]
        if tables and len(names) == len(tables) and classes.keys() >= set(names):
            return tuple(classes[kind].model_validate(table) for kind, table in zip(names, tables, strict=True))
        for kind in names:
            if kind not in kinds():
                raise ModelError(
                    f"{path}: the task {shown(kind)} is not one of regard's; load it in Python with task=..."
                )
        return _TaskFile.model_validate({"tasks": tables}).tasks
    except ConfigError as error:
        raise ModelError(f"{path}: {error}") from None


def write_tasks(directory: Path, tasks: Sequence[Task]) -> None:
    """Write the tasks of a model, with the names of classes that are not regard's."""
    content: dict[str, Any] = {"tasks": [_table(task) for task in tasks]}
    directory.mkdir(parents=True, exist_ok=True)
    with replaced_file(directory / TASKS_FILE) as fresh:
        fresh.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _table(task: Task) -> dict[str, Any]:
    table = task.model_dump(mode="json")
    cls = type(task)
    return table if cls.__module__.startswith("regard.") else {"class": f"{cls.__module__}.{cls.__qualname__}", **table}
