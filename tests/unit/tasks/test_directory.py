"""The tasks that a model directory names."""

import os
from pathlib import Path

import pytest

from regard.data.corpora import Example
from regard.errors import ModelError
from regard.tasks.directory import read_tasks, write_tasks
from regard.tasks.question_answering import QuestionAnsweringTask
from regard.tasks.translation import TranslationTask


def test_without_a_file_a_model_is_for_translation(tmp_path: Path) -> None:
    assert read_tasks(tmp_path) == (TranslationTask(),)


def test_tasks_are_read_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "task.json").write_text(
        '{"tasks": [{"kind": "question-answering", "tag": "<answer>"}, {"kind": "translation"}]}'
    )
    assert read_tasks(tmp_path) == (QuestionAnsweringTask(tag="<answer>"), TranslationTask())


class Shouted(TranslationTask):
    def source(self, example: Example) -> str:
        return str(example["source"]).upper()


def test_a_subclass_of_a_task_is_not_taken_for_the_task(tmp_path: Path) -> None:
    write_tasks(tmp_path, [Shouted(tag="<x>")])
    with pytest.raises(
        ModelError, match=r"task.json: the task was of the class '.*Shouted'; load it in Python with task="
    ):
        read_tasks(tmp_path)
    (found,) = read_tasks(tmp_path, [Shouted()])
    assert type(found) is Shouted
    assert found.tag == "<x>"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[1]", "task.json holds a JSON list; an object was expected"),
        ("{}", "tasks is missing"),
        ('{"tasks": []}', "task names nothing; a model has one task"),
        ('{"tasks": "translation"}', "tasks is 'translation'"),
        ('{"tasks": [{"kind": "translation"}], "task": 1}', "task is not a known key"),
        ('{"tasks": ["translation"]}', r"tasks\.0 is 'translation'"),
        ('{"tasks": [{"kind": "translation"}, {"tag": "<x>"}]}', r"tasks\.1"),
        ('{"tasks": [{"kind": 3}]}', r"tasks\.0"),
        ('{"tasks": [{"kind": {"kind": "translation"}}]}', r"tasks\.0"),
        ('{"tasks": [{"kind": "a\\nb"}]}', "the task 'a.{1,2}nb' is not one of regard's"),
        ('{"tasks": [{"kind": "translation", "windows": 1}]}', "is not a known key"),
        ('{"tasks": [{"kind": "translation", "tag": 3}]}', "tag is 3"),
        ("[" * 100_000, "task.json is not JSON"),
    ],
)
def test_what_is_no_list_of_tasks_is_refused_in_a_sentence(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "task.json").write_text(content)
    with pytest.raises(ModelError, match=says) as found:
        read_tasks(tmp_path)
    assert str(tmp_path / "task.json") in str(found.value)
    assert "\n" not in str(found.value)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "task.json").touch()
    os.truncate(tmp_path / "task.json", 2**31)
    with pytest.raises(ModelError, match="task.json is larger than 1 MB; such a file is not read"):
        read_tasks(tmp_path)
