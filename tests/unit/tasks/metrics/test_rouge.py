from statistics import fmean

import pytest
from rouge_score.rouge_scorer import RougeScorer

from regard.tasks import score
from tests.unit.tasks.metrics.pairs import random_pairs

NAMES = ["rouge1", "rouge2", "rougeL"]


@pytest.mark.parametrize("name", NAMES)
def test_random_pairs_score_as_in_the_rouge_score_package(name: str) -> None:
    scorer = RougeScorer([name], use_stemmer=True)
    texts, references = random_pairs(1000, references=3)
    expected = []
    for text, some in zip(texts, references, strict=True):
        best = max(scorer.score(reference, text)[name].fmeasure for reference in some)
        expected.append(100 * best)
        assert score(name, [text], [some]).value == 100 * best
    assert score(name, texts, references).value == pytest.approx(fmean(expected), rel=1e-12)
    assert 5 < fmean(expected) < 95


def test_words_are_stemmed_and_the_signature_says_so() -> None:
    found = score("rouge1", ["running cats"], ["runs cat"])
    assert found.value == 100.0
    assert found.text == "rouge1 = 100.00"
    assert found.signature.startswith("rouge1|measure:f|stemmer:porter|chars:a-z0-9|version:rouge-score-")


@pytest.mark.parametrize("name", NAMES)
def test_a_text_without_latin_letters_or_digits_scores_0_even_against_itself(name: str) -> None:
    assert score(name, ["東京", ""], ["東京", ""]).value == 0.0
