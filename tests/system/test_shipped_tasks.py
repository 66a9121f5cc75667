"""The models of the package that give abstracts a title and answer questions about stories, as people meet them."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

import regard
from regard import models
from regard.tasks import score

ABSTRACTS = {
    "Neural Machine Translation for Low-Resource Languages": """
        Neural machine translation works well where there are large parallel corpora, and poorly for low-resource
        languages. In this paper we compare methods of data augmentation for neural machine translation of five
        low-resource languages. Back-translation improves BLEU scores for all of them.""",
    "A Dataset for Question Answering in Medical Texts": """
        We present a new dataset for question answering in medical texts. It contains 10,000 questions written by
        doctors, with answers from clinical notes. We evaluate several baseline models on the dataset and find that
        question answering in the medical domain remains a challenge.""",
    "Named Entity Recognition in Historical Documents": """
        Named entity recognition in historical documents suffers from errors of optical character recognition. We
        propose a method for named entity recognition that is robust to such errors, and evaluate it on historical
        newspapers in three languages.""",
    "Detecting Hate Speech in Social Media": """
        The detection of hate speech in social media is an important task. This paper describes our system for
        detecting hate speech and offensive language in tweets. We fine-tune a pretrained language model and achieve
        the second rank in the shared task.""",
}


STORY = """Sandra picked up the apple there.
John went to the hallway.
Sandra journeyed to the garden.
Daniel moved to the kitchen.
John travelled to the office.
"""


@pytest.mark.parametrize(("name", "terms"), [("titles", "CC BY 4.0"), ("stories", "CC BY 3.0")])
def test_it_is_small_and_says_what_it_is(name: str, terms: str) -> None:
    path = models.path_of(name)
    assert sum(file.stat().st_size for file in path.iterdir()) <= 20_000_000
    card = (path / "README.md").read_text(encoding="utf-8")
    for expected in (terms, "## Scores", "## Limits", "attribution"):
        assert expected in card


def test_a_title_is_about_its_abstract() -> None:
    summarizer = regard.load("titles", task="summarization")
    titles = [one.text for one in summarizer.summarize(list(ABSTRACTS.values()))]
    assert all(3 <= len(title.split()) <= 25 for title in titles), titles
    found = score("rouge1", titles, list(ABSTRACTS)).value
    others = score("rouge1", titles[1:] + titles[:1], list(ABSTRACTS)).value
    assert found > 30.0, titles
    assert found > 2 * others, titles


def test_the_command_answers_at_once_without_a_model_being_named() -> None:
    began = time.perf_counter()
    command = [sys.executable, "-m", "regard", "summarize"]
    abstract = next(iter(ABSTRACTS.values()))
    title = subprocess.run(command, input=abstract, capture_output=True, text=True, check=True).stdout
    assert len(title.split()) >= 3
    assert time.perf_counter() - began < 10.0  # 3 on an idle machine


def test_questions_about_a_story_are_answered() -> None:
    answerer = regard.load("stories", task="question-answering")
    expected = {"Where is John?": "office", "Where is Daniel?": "kitchen", "Where is Sandra?": "garden"}
    answers = answerer.answer(list(expected), STORY)
    assert {question: answer.text for question, answer in zip(expected, answers, strict=True)} == expected


def test_a_question_on_the_command_line_is_answered_without_a_model_being_named(tmp_path: Path) -> None:
    (tmp_path / "story.txt").write_text(STORY, encoding="utf-8")
    began = time.perf_counter()
    command = [sys.executable, "-m", "regard", "answer", "--context", str(tmp_path / "story.txt"), "Where is John?"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "office\n"
    assert time.perf_counter() - began < 10.0  # 3 on an idle machine
