"""A model directory becomes the pipeline of its task."""

import json
from pathlib import Path

import pytest
import torch

import regard
from regard.data.corpora import Example
from regard.errors import InputError, ModelError
from regard.pipelines import load
from regard.tasks import Task
from regard.tasks.summarization import Summarizer
from regard.tasks.text2text import TextToText
from regard.tasks.translation import Translator
from tests.unit.models import SENTENCES, save_small_model, small_model


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save_small_model(tmp_path / "model")


def write_tasks(path: Path, *kinds: str) -> None:
    tags = {} if len(kinds) == 1 else {"tag": "<2de>"}  # a special token of the tokenizer
    (path / "task.json").write_text(json.dumps({"tasks": [{"kind": kind, **tags} for kind in kinds]}))


def test_a_directory_is_loaded_whole_or_not_at_all(tmp_path: Path) -> None:
    path = save_small_model(tmp_path / "model")
    assert load(path, precision="float").translate(SENTENCES[0], to="de") == regard.load(
        str(path), precision="float"
    ).translate(SENTENCES[0], to="de")
    (path / "generation.json").write_text('{"beam": 2, "colour": 1}')
    with pytest.raises(ModelError, match="generation.json"):
        load(path)
    with pytest.raises(ModelError, match="is no directory, and no model of the package"):
        load(tmp_path / "nothing")
    (path / "generation.json").write_text('{"beam": 2}')
    assert load(path).settings.beam == 2
    (path / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match="tokenizer.json is missing"):
        load(path)


def test_in_doubles_nothing_is_rounded_to_bytes(tmp_path: Path) -> None:
    model, tokenizer = small_model(torch.float64)
    model.save(tmp_path)
    tokenizer.save(tmp_path / "tokenizer.json")
    pipeline = load(tmp_path)
    assert pipeline.precision == "float"
    assert pipeline.translate(SENTENCES[0], to="de").tokens


def test_a_directory_without_tasks_is_for_translation(path: Path) -> None:
    assert type(load(path)) is Translator
    assert load(path, task="translation").translate(SENTENCES[0], to="de").text
    write_tasks(path, "translation")
    assert type(load(path)) is Translator


def test_a_model_of_several_tasks_has_its_first_unless_one_is_named(path: Path) -> None:
    write_tasks(path, "summarization", "translation")
    assert type(load(path)) is Summarizer
    assert type(load(path, task="translation")) is Translator
    assert load(path).identity != load(path, task="translation").identity


def test_a_model_of_another_task_is_refused_with_the_command_that_it_is_for(path: Path) -> None:
    write_tasks(path, "summarization")
    with pytest.raises(ModelError) as found:
        load(path, task="translation")
    assert str(found.value) == f"{path} is for summarization (regard summarize), not translation"
    write_tasks(path, "summarization", "question-answering")
    with pytest.raises(
        ModelError, match=r"\(regard summarize\) and question-answering \(regard answer\), not translation"
    ):
        load(path, task="translation")


class Weather(Task):
    kind: str = "weather"

    def source(self, example: Example) -> str:
        return f"{example['source']} today"

    def answer(self, text: str) -> str:
        return text.upper()


def test_a_model_of_a_task_of_ones_own_is_loaded_with_the_task(path: Path) -> None:
    write_tasks(path, "weather")
    with pytest.raises(ModelError, match="the task 'weather' is not one of regard's; it is given with task="):
        load(path)
    pipeline = load(path, task=Weather(), precision="float")
    made = pipeline.write({"source": SENTENCES[0]})
    assert made.text == pipeline.generate(f"{SENTENCES[0]} today").text.upper()
    assert pipeline.predictions([{"source": SENTENCES[0]}]) == [made.text]


def test_one_of_several_kinds_will_do(path: Path) -> None:
    write_tasks(path, "translation", "text2text")
    assert type(load(path, task=["text2text", "translation"])) is Translator
    assert type(load(path, task=["text2text"])) is TextToText


def test_a_task_that_there_is_not_is_refused(path: Path) -> None:
    with pytest.raises(InputError, match="task 'translations' is not known; did you mean translation\\?"):
        load(path, task="translations")
    with pytest.raises(InputError, match="task 'x' is not known"):
        load(path, task=["translation", "x"])
    with pytest.raises(InputError, match="task 'x' is not known; it is one of classification, extractive"):
        load(path, task="x")


def test_a_tag_that_the_tokenizer_does_not_know_is_refused(path: Path) -> None:
    (path / "task.json").write_text('{"tasks": [{"kind": "translation", "tag": "<translate>"}]}')
    with pytest.raises(ModelError, match="tag '<translate>', which is not a special token of its tokenizer"):
        load(path)
