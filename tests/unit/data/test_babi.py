"""bAbI's stories: what is before a question is its context."""

import tarfile
from pathlib import Path

import pytest

from regard import ConfigError
from regard.data import Answer, Babi
from regard.data.babi import read_babi
from regard.data.exchanged_words import BABI
from regard.errors import DataError
from tests.unit.data.shared import shared

FIELDS = ("context", "question", "answers")
STORIES = """\
1 Mary took the milk.
2 Mary took the ball.
3 What is Mary carrying? \tmilk,ball\t1 2
4 Mary left the milk.
5 What is Mary carrying?\tball\t1 2 4
1 John slept.
2 Who slept?\tJohn\t1
"""


def test_the_context_of_a_question_is_the_statements_before_it(tmp_path: Path) -> None:
    path = tmp_path / "qa8_lists-sets_test.txt"
    path.write_text(STORIES)
    found = list(Babi(path=path).examples(FIELDS))
    assert [tuple(example[field] for field in FIELDS) for example in found] == [
        ("Mary took the milk. Mary took the ball.", "What is Mary carrying?", [Answer("milk,ball")]),
        ("Mary took the milk. Mary took the ball. Mary left the milk.", "What is Mary carrying?", [Answer("ball")]),
        ("John slept.", "Who slept?", [Answer("John")]),
    ]
    assert {(example["task"], example["task_name"]) for example in found} == {(8, "lists-sets")}


def test_a_pattern_names_several_files_in_the_order_of_their_tasks(tmp_path: Path) -> None:
    for number in (10, 2, 1):
        for part in ("train", "test"):
            (tmp_path / f"qa{number}_x_{part}.txt").write_text(f"1 I am {number}.\n2 Who?\t{part}\t1\n")
    corpus = Babi(path=tmp_path / "*_train.txt")
    assert [example["task"] for example in corpus.examples(FIELDS)] == [1, 2, 10]
    assert {example["answers"][0].text for example in corpus.examples(FIELDS)} == {"train"}
    (tmp_path / "mine.txt").write_text(STORIES)
    assert {(example["task"], example["task_name"]) for example in read_babi(tmp_path / "mine.txt")} == {(None, "mine")}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("Mary slept.", "line 2 is not of bAbI's form: a number, a space and a statement"),
        ("2 Who?\t\t1", r"line 2: the question 'Who\?' is without an answer"),
        ("1 Who?\tMary\t1", r"line 2: the question 'Who\?' is without a statement before it"),
    ],
)
def test_what_is_wrong_is_told_by_file_and_line(tmp_path: Path, line: str, says: str) -> None:
    (tmp_path / "story.txt").write_text(f"1 Mary slept.\n{line}\n")
    with pytest.raises(DataError, match=rf"story.txt, {says}"):
        list(Babi(path=tmp_path / "story.txt").examples(FIELDS))


def test_what_names_no_stories_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a directory; its files are named by a pattern"):
        list(Babi(path=tmp_path).examples(FIELDS))
    with pytest.raises(DataError, match=r"\*_train.txt matches no file"):
        list(Babi(path=tmp_path / "*_train.txt").examples(FIELDS))
    with pytest.raises(DataError, match="absent is missing"):
        list(Babi(path=tmp_path / "absent").examples(FIELDS))
    with pytest.raises(ConfigError, match="kind 'babi' has no 'source'; its fields are context, question, answers"):
        Babi(path=tmp_path / "absent").pairs()


def test_the_published_tasks_have_a_thousand_questions_each(tmp_path: Path) -> None:
    with tarfile.open(shared("babi/tasks_1-20_v1-1.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    for part in ("train", "test"):
        found = list(Babi(path=tmp_path / "en" / f"*_{part}.txt").examples(FIELDS))
        counts = [sum(example["task"] == task for example in found) for task in range(1, 21)]
        assert counts == [1000] * 20
        assert all(example["context"].endswith(".") for example in found)
    assert (found[0]["task_name"], found[-1]["task_name"]) == ("single-supporting-fact", "agents-motivations")


def test_copies_exchange_words_in_the_whole_story_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "qa8_lists-sets_train.txt"
    path.write_text(STORIES)
    found = list(Babi(path=path, copies=30).examples(FIELDS))
    assert found == list(Babi(path=path, copies=30).examples(FIELDS))
    assert found[::31] == list(Babi(path=path).examples(FIELDS))
    assert len({example["context"] for example in found[:31]}) > 5
    for example in found[:31]:
        person, thing = example["context"].split()[0], example["answers"][0].text.split(",")[0]
        assert example["context"] == f"{person} took the {thing}. {person} took the ball."
        assert example["question"] == f"What is {person} carrying?"


def test_copies_of_tasks_that_are_not_known_are_not_made(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text(STORIES)
    assert len(list(Babi(path=tmp_path / "mine.txt", copies=5).examples(FIELDS))) == 3


def test_no_word_of_a_task_is_in_two_lists() -> None:
    for alike in BABI.values():
        forms = [form for words in alike for word in words for form in ((word,) if isinstance(word, str) else word)]
        assert len(forms) == len(set(forms))
