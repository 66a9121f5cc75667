"""SQuAD's format: read, written, and refused where it is wrong."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from regard import ConfigError
from regard.data.squad import (
    Answer,
    Squad,
    SquadDataset,
    SquadExample,
    read_predictions,
    read_squad,
    write_predictions,
    write_squad,
)
from regard.errors import DataError
from tests.unit.data.shared import shared

CONTEXT = "Mary took the milk to the garden. 🥛 was gone."


def content(**changes: Any) -> dict[str, Any]:
    """Return a file with one question, some keys of which are changed or removed (None)."""
    question = {"id": "q1", "question": "Where?", "answers": [{"text": "garden", "answer_start": 26}], **changes}
    question = {key: value for key, value in question.items() if value is not None}
    return {"version": "1.1", "data": [{"title": "Milk", "paragraphs": [{"context": CONTEXT, "qas": [question]}]}]}


def written(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_questions_are_read_with_context_and_answers(tmp_path: Path) -> None:
    (found,) = read_squad(written(tmp_path / "x.json", content())).examples
    assert found == SquadExample("q1", "Milk", CONTEXT, "Where?", [Answer("garden", 26)])
    corpus = Squad(path=tmp_path / "x.json")
    (example,) = corpus.examples(("context", "question", "answers"))
    assert (example["id"], example["answers"]) == ("q1", [Answer("garden", 26)])


def test_version_2_keeps_what_is_impossible_and_plausible(tmp_path: Path) -> None:
    plausible = [{"text": "🥛", "answer_start": 34}]
    changed = content(is_impossible=True, answers=[], plausible_answers=plausible)
    dataset = read_squad(written(tmp_path / "x.json", changed))
    (found,) = dataset.examples
    assert (found.is_impossible, found.answers, found.plausible_answers) == (True, [], [Answer("🥛", 34)])
    write_squad(tmp_path / "y.json", dataset)
    assert json.loads((tmp_path / "y.json").read_text()) == changed


def test_unknown_keys_and_a_missing_title_come_through(tmp_path: Path) -> None:
    given = content(comment="half: \ud83d", answers=None)
    given["data"][0]["paragraphs"][0]["document_id"] = 7
    given["data"][0].pop("title")
    dataset = read_squad(written(tmp_path / "x.json", given))
    assert dataset.examples == [SquadExample("q1", "", CONTEXT, "Where?", [])]
    write_squad(tmp_path / "y.json", dataset)
    assert json.loads((tmp_path / "y.json").read_text()) == given


@pytest.mark.parametrize("version", ["1.1", "v2.0"])
def test_new_questions_are_written_and_read_again(tmp_path: Path, version: str) -> None:
    examples = [
        SquadExample("1", "A", "Eins zwei.", "Was?", [Answer("zwei", 5), Answer("Eins", 0)]),
        SquadExample("2", "A", "Eins zwei.", "Wer?", [], is_impossible=version != "1.1"),
        SquadExample("3", "A", "Drei.", "Was?", [Answer("Drei", 0)]),
        SquadExample("4", "B", "Drei.", "Was?", [Answer("Drei", 0)]),
    ]
    write_squad(tmp_path / "x.json", SquadDataset.of(examples, version))
    found = read_squad(tmp_path / "x.json")
    assert found.examples == examples
    assert [len(article["paragraphs"]) for article in found.content["data"]] == [2, 1]
    assert all(
        ("is_impossible" in question) == (version != "1.1")
        for article in found.content["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    )


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ('{"data": [\n}', "x.json is not JSON: Expecting value at line 2"),
        ([], "x.json: the file is list, not an object; SQuAD's format was expected"),
        ({"version": "1.1"}, "x.json: the file has no 'data'"),
        ({"data": {}}, "x.json: data is dict, not a list"),
        ({"data": [{"paragraphs": [{"context": "", "qas": [3]}]}]}, r"data\[0\].paragraphs\[0\].qas\[0\] is int"),
        (content(question=None), r"data\[0\].paragraphs\[0\].qas\[0\] has no 'question'"),
        (content(question=["Where?"]), r"data\[0\].paragraphs\[0\].qas\[0\].question is list, not text"),
        (content(is_impossible="no"), r"qas\[0\].is_impossible is str, not true or false"),
        (content(answers="garden"), r"qas\[0\].answers is str, not a list"),
        (content(answers=[{"text": "garden"}]), r"qas\[0\].answers\[0\] has no 'answer_start'"),
        (content(answers=[{"text": "garden", "answer_start": "26"}]), "answers has an answer_start of '26'"),
        (
            content(answers=[{"text": "garden", "answer_start": 25}]),
            "x.json, question q1: the answer 'garden' is not in its context at character 25, its answer_start",
        ),
        ({"data": content()["data"] * 2}, "x.json has two questions with the id 'q1'"),
    ],
)
def test_what_is_wrong_is_told_by_where_it_is(tmp_path: Path, value: Any, says: str) -> None:
    path = written(tmp_path / "x.json", value)
    with pytest.raises(DataError, match=says):
        list(Squad(path=path).examples(("context", "question", "answers")))


def test_answers_that_are_not_there_are_not_taken_for_none(tmp_path: Path) -> None:
    path = written(tmp_path / "x.json", content(answers=None))
    assert [found["id"] for found in Squad(path=path).examples(("id", "question"))] == ["q1"]
    with pytest.raises(DataError, match="x.json: question q1 has no answers, an empty list if there is none"):
        list(Squad(path=path).examples(("question", "answers")))
    changed: list[dict[str, Any]] = [{"answers": []}, {"answers": None, "is_impossible": True}]
    for changes in changed:
        (found,) = Squad(path=written(tmp_path / "x.json", content(**changes))).examples(("answers",))
        assert found["answers"] == []


def test_fields_that_squad_does_not_have_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="kind 'squad' has no 'summary'; its fields are id, title, context"):
        Squad(path=tmp_path / "absent").examples(("context", "summary"))


def test_predictions_are_written_and_read_again(tmp_path: Path) -> None:
    predictions = {"q1": "garden", "q2": "", "q3": "Gärten 🥛"}
    write_predictions(tmp_path / "p.json", predictions)
    assert read_predictions(tmp_path / "p.json") == predictions
    with pytest.raises(DataError, match=r"p.json: the prediction for 'q1' is int, not text"):
        read_predictions(written(tmp_path / "p.json", {"q1": 3}))
    with pytest.raises(DataError, match=r"p.json holds a JSON list; an object of ids and texts was expected"):
        read_predictions(written(tmp_path / "p.json", []))


@pytest.mark.parametrize("language", ["de", "en"])
def test_xquad_goes_through_without_loss(tmp_path: Path, language: str) -> None:
    path = shared(f"xquad/xquad.{language}.json.gz")
    dataset = read_squad(path)
    assert len(dataset.examples) == 1190
    write_squad(tmp_path / "x.json", dataset)
    with gzip.open(path) as file:
        given = json.load(file)
    assert json.loads((tmp_path / "x.json").read_text()) == given
    write_squad(tmp_path / "y.json", SquadDataset.of(dataset.examples, given["version"]))
    assert read_squad(tmp_path / "y.json").examples == dataset.examples
    assert len(list(Squad(path=path).examples(("context", "question", "answers")))) == 1190
