"""The tasks of a model directory: `task.json`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.configs import Config
from regard.errors import ConfigError, ModelError
from regard.files import check_names, read_json, replaced_file
from regard.tasks.known import Tasks, kinds
from regard.tasks.task import Task
from regard.tasks.translation import TranslationTask

TASKS_FILE = "task.json"
_LARGEST = 16 << 20
DEFAULT_TASKS = (TranslationTask(),)
"""Those of a directory without the file: models were made for translation before there were other tasks."""


class _TaskFile(Config):
    """What the file holds."""

    tasks: Tasks


def read_tasks(directory: Path, own: Sequence[Task] = ()) -> tuple[Task, ...]:
    """Read the tasks of a model; `own` are those that are not regard's, with the settings to take from the file."""
    path = directory / TASKS_FILE
    if not path.exists():
        return DEFAULT_TASKS
    content = read_json(path, largest=_LARGEST)
    check_names(content, path)
    tables = content.get("tasks")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ModelError(f"{path}: tasks is not a list of tables, each with the kind of a task")
    mine = {task.kind: task for task in own if task.kind not in kinds()}
    try:
        if all(table.get("kind") in mine for table in tables) and tables:
            return tuple(type(mine[table["kind"]]).model_validate(table) for table in tables)
        return _TaskFile.model_validate(content).tasks
    except ConfigError as error:
        unknown = [str(table.get("kind")) for table in tables if table.get("kind") not in kinds()]
        if unknown:
            raise ModelError(f"{path}: the task {unknown[0]!r} is not one of regard's; give it with task=") from None
        raise ModelError(f"{path}: {error}") from None


def write_tasks(directory: Path, tasks: Sequence[Task]) -> None:
    """Write the tasks of a model."""
    content: dict[str, Any] = {"tasks": [task.model_dump(mode="json") for task in tasks]}
    directory.mkdir(parents=True, exist_ok=True)
    with replaced_file(directory / TASKS_FILE) as fresh:
        fresh.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
