"""The model of the package that gives abstracts a title, as people meet it."""

import subprocess
import sys
import time

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


def test_it_is_small_and_says_what_it_is() -> None:
    path = models.path_of("titles")
    assert sum(file.stat().st_size for file in path.iterdir()) <= 20_000_000
    card = (path / "README.md").read_text(encoding="utf-8")
    for expected in ("CC BY 4.0", "## Scores", "## Limits", "attribution"):
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
