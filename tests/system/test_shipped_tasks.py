"""The models of other tasks in the package, as people meet them: a title for an abstract, answers about a story."""

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
STORIES = {
    ("Mary went to the kitchen. John moved to the garden. Where is John?"): "garden",
    ("Daniel journeyed to the office. Sandra went to the bathroom. Daniel went to the hallway. Where is Daniel?"): (
        "hallway"
    ),
    ("Sandra travelled to the bedroom. John went to the kitchen. Where is Sandra?"): "bedroom",
    ("Mary moved to the hallway. Mary went back to the garden. Is Mary in the garden?"): "yes",
    ("John went to the office. Sandra journeyed to the kitchen. Is John in the kitchen?"): "no",
}


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


def test_questions_about_stories_are_answered() -> None:
    answerer = regard.load("stories", task="question-answering")
    for text, answer in STORIES.items():
        *statements, question = text.replace("? ", "?").split(". ")
        assert answerer.answer(question, ". ".join(statements) + ".").text == answer, text


def run_cold(*arguments: str, stdin: str) -> tuple[str, float]:
    """Return what a command prints, and how many seconds of CPU it took."""
    command = [sys.executable, "-m", "regard", *arguments]
    began = time.perf_counter()
    printed = subprocess.run(command, input=stdin, capture_output=True, text=True, check=True).stdout
    return printed, time.perf_counter() - began


def test_commands_answer_at_once_without_a_model_being_named(tmp_path: Path) -> None:
    title, seconds = run_cold("summarize", stdin=next(iter(ABSTRACTS.values())))
    assert len(title.split()) >= 3
    (tmp_path / "story.txt").write_text("Mary went to the kitchen. John moved to the garden.")
    answer, more = run_cold("answer", "--context", str(tmp_path / "story.txt"), "Where is John?", stdin="")
    assert answer == "garden\n"
    assert max(seconds, more) < 10.0  # 3 on an idle machine
