"""Exact match and F1 of answers by the published rules of SQuAD 2.0 (Rajpurkar et al. 2018).

An unanswerable question has one reference, the empty string; there an empty answer scores 1 and any other 0.
"""

import re
import string
from collections import Counter

from regard.tasks.metrics.bootstrap import MeanMetric

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SIGNATURE = "rules:squad-2.0|case:lower|punct:no|articles:no|refs:best"


def normalize_answer(text: str) -> str:
    """Return an answer in lower case, without ASCII punctuation, English articles and extra white space.

    >>> normalize_answer("  The U.S.  Senate!")
    'us senate'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def _exact(text: str, references: tuple[str, ...]) -> float:
    return float(normalize_answer(text) in _normalized(references))


def _f1(text: str, references: tuple[str, ...]) -> float:
    words = normalize_answer(text).split()
    return max(_f1_of_words(words, reference.split()) for reference in _normalized(references))


def _normalized(references: tuple[str, ...]) -> list[str]:
    """Return the references of which something is left; without any, the empty answer is right."""
    return [answer for answer in map(normalize_answer, references) if answer] or [""]


def _f1_of_words(words: list[str], reference: list[str]) -> float:
    if not words or not reference:
        return float(words == reference)
    same = (Counter(words) & Counter(reference)).total()
    if not same:
        return 0.0
    precision, recall = same / len(words), same / len(reference)
    return 2 * precision * recall / (precision + recall)


SQUAD_EXACT = MeanMetric("squad_exact", _exact, f"squad_exact|{_SIGNATURE}")
SQUAD_F1 = MeanMetric("squad_f1", _f1, f"squad_f1|{_SIGNATURE}")
