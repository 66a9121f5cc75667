from collections import Counter
from itertools import groupby

import pytest

from regard.tasks import score
from tests.unit.tasks.metrics.pairs import random_pairs


def _words(answer: str) -> list[str]:
    """The words of an answer by SQuAD's rules, spelled out without regular expressions."""
    kept = "".join(
        character for character in answer.lower() if character not in r"""!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~"""
    )
    runs = ["".join(run) for _, run in groupby(kept, str.isalnum)]
    return "".join(" " if run in ("a", "an", "the") else run for run in runs).split()


def _expected(answer: str, references: tuple[str, ...]) -> tuple[float, float]:
    """Exact match and F1 of one answer."""
    golds = [gold for gold in map(_words, references) if gold] or [[]]
    words = _words(answer)
    best = 0.0
    for gold in golds:
        rest, common = Counter(gold), 0
        for word in words:
            if rest[word]:
                rest[word] -= 1
                common += 1
        if gold and words:
            best = max(best, 2 * common / (len(gold) + len(words)))
        else:
            best = max(best, float(gold == words))
    return float(words in golds), best


def test_random_pairs_score_by_the_published_rules() -> None:
    texts, references = random_pairs(1000, references=3)
    expected = [_expected(text, some) for text, some in zip(texts, references, strict=True)]
    for text, some, (exact, f1) in zip(texts, references, expected, strict=True):
        assert score("squad_exact", [text], [some]).value == 100 * exact
        assert score("squad_f1", [text], [some]).value == pytest.approx(100 * f1, rel=1e-12)
    assert score("squad_exact", texts, references).value == sum(exact for exact, _ in expected) / 10
    assert score("squad_f1", texts, references).value == pytest.approx(sum(f1 for _, f1 in expected) / 10)


@pytest.mark.parametrize(
    ("answer", "references", "exact", "f1"),
    [
        ("The U.S. Senate!", "US senate", 100, 100),
        ("in the big house", ["a house", "big houses"], 0, 50),  # in big house, beside house: 1 of 3, 1 of 1
        ("big house", ["a house", "the big house"], 100, 100),
        ("", "", 100, 100),
        ("the", "", 100, 100),
        ("anything", "", 0, 0),
        ("", "something", 0, 0),
        ("a", ["the", "cat"], 0, 0),  # a reference of which nothing is left does not count beside another
        ("der Hund", "Hund", 0, 200 / 3),  # articles are the English ones
        ("theme", "me", 0, 0),
    ],
)
def test_answers(answer: str, references: str | list[str], exact: float, f1: float) -> None:
    assert score("squad_exact", [answer], [references]).value == exact
    assert score("squad_f1", [answer], [references]).value == pytest.approx(f1)
