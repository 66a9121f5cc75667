"""Summaries without a model."""

from benchmarks.tasks.baselines import (
    baselines,
    central_sentence,
    cut,
    mean_length,
    oracle,
    oracle_sentence,
    sentences,
)
from regard.data.similarity import TfIdf

TRAIN = [
    {"document": "Parsers read trees. They are fast.", "summary": "Fast parsers of trees"},
    {"document": "Speech is recorded. We align speech with text.", "summary": "Speech alignment"},
]
TEST = [{"document": "We work late. We align speech with long text. It is fun.", "summary": "Align speech with text"}]


def test_a_text_has_at_least_one_sentence() -> None:
    assert sentences("One. Two.") == ["One.", "Two."]
    assert sentences("no end") == ["no end"]
    assert sentences("") == [""]


def test_texts_are_cut_after_so_many_words() -> None:
    assert cut("one  two three", 2) == "one two"
    assert cut("one", 5) == "one"


def test_the_mean_length_is_in_words_and_rounded() -> None:
    assert mean_length(["a b c", "a b", "a b c d"]) == 3


def test_the_central_sentence_has_the_words_of_the_document() -> None:
    index = TfIdf([example["document"] for example in TRAIN])
    assert central_sentence(TEST[0]["document"], index) == "We align speech with long text."


def test_the_oracle_is_the_sentence_closest_to_the_reference() -> None:
    assert oracle_sentence("It is fun. We align speech.", "aligning speech") == "We align speech."
    assert oracle(TEST) == ["We align speech with long text."]


def test_each_baseline_summarizes_each_document() -> None:
    found = baselines(TRAIN, TEST)
    assert found == {
        "first sentence, cut to 3 words": ["We work late."],
        "summary of the most similar training document": ["Speech alignment"],
        "most central sentence": ["We align speech with long text."],
        "most central sentence, cut to 3 words": ["We align speech"],
    }
