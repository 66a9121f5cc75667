"""The tasks of a model directory, as its `task.json` names them."""

import re
from pathlib import Path
from typing import Any

from regard.errors import ModelError, shown
from regard.files import check_names, read_json

TASKS = "task.json"
"""In a model directory: {"tasks": [{"kind": "translation"}, …]}. Without it, a model is for translation."""
_LARGEST_TASKS, _MOST_TASKS = 1 << 20, 100
_KIND = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LONGEST_KIND = 50


def read_tasks(path: Path) -> list[dict[str, Any]]:
    """Return the tables of the tasks that the model of a directory is for; each has a kind."""
    file = path / TASKS
    if not file.exists():
        return [{"kind": "translation"}]
    content = read_json(file, largest=_LARGEST_TASKS)
    check_names(content, file)
    unknown = [key for key in content if key != "tasks"]
    if unknown:
        raise ModelError(f"{file}: {unknown[0]} is not a key it knows; it has tasks")
    tables = content.get("tasks")
    if not isinstance(tables, list) or not 1 <= len(tables) <= _MOST_TASKS:
        raise ModelError(f"{file}: tasks is not a list of 1 to {_MOST_TASKS} tasks")
    for number, table in enumerate(tables):
        _check_table(table, number, file)
    return tables


def _check_table(table: object, number: int, file: Path) -> None:
    if not isinstance(table, dict) or "kind" not in table:
        raise ModelError(f'{file}: tasks.{number} is not a table with a kind, such as {{"kind": "translation"}}')
    check_names(table, file)
    kind, tag = table["kind"], table.get("tag")
    if not isinstance(kind, str) or len(kind) > _LONGEST_KIND or not _KIND.fullmatch(kind):
        raise ModelError(f"{file}: tasks.{number}.kind is {shown(kind)}; a name such as translation was expected")
    if tag is not None and not isinstance(tag, str):
        raise ModelError(f"{file}: tasks.{number}.tag is {shown(tag)}; a special token of the tokenizer was expected")
