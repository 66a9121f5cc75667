import math
from fractions import Fraction

import pytest

from regard.tasks import score


def _bleu(precisions: list[Fraction], length: int, reference: int) -> float:
    penalty = math.exp(min(0.0, 1 - reference / length))
    return float(100 * penalty * float(math.prod(precisions)) ** 0.25)


@pytest.mark.parametrize(
    ("texts", "references", "expected"),
    [
        (["a b c d e"], ["a b c d e"], 100.0),
        (["a"], ["a"], 100.0),  # orders without any n-gram have precision 1/1
        # Matches: a b c d, then a b and c d; possible: 5, 4, 3, 2.
        (["a b x c d"], ["a b c d"], _bleu([Fraction(5, 6), Fraction(3, 5), Fraction(1, 4), Fraction(1, 3)], 5, 4)),
        # Counts are clipped: `a` matches twice. The text is shorter: exp(1 - 5/4).
        (["a a a b"], ["a b c d a"], _bleu([Fraction(4, 5), Fraction(2, 4), Fraction(1, 3), Fraction(1, 2)], 4, 5)),
        # Counts are summed over the corpus before they are smoothed.
        (["a b", "c"], ["a b", "d"], _bleu([Fraction(3, 4), Fraction(2, 2), Fraction(1), Fraction(1)], 3, 3)),
        # Of several references each n-gram may come from another, and the shortest is the length.
        (
            ["a b c"],
            [["a b x y z", "b c"]],
            _bleu([Fraction(4, 4), Fraction(3, 3), Fraction(1, 2), Fraction(1)], 3, 2),
        ),
        (["", ""], ["a b", ""], 0.0),
        (["a", ""], ["", ""], _bleu([Fraction(1, 2), Fraction(1), Fraction(1), Fraction(1)], 1, 0)),
        (["  x\u00a0y\t z "], ["x y z"], 100.0),
    ],
)
def test_bleu_adds_one_to_matches_and_possible_matches(
    texts: list[str], references: list[str | list[str]], expected: float
) -> None:
    assert score("code_bleu4", texts, references).value == pytest.approx(expected, rel=1e-12)


def test_exact_match_is_of_stripped_lines() -> None:
    texts, references = [" a b\t", "a  b", "x"], ["a b", "a b", "x "]
    assert score("code_exact", texts, references).value == pytest.approx(200 / 3)
    assert score("exact", texts, references).value == 0.0
