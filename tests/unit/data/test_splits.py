"""Parts of a corpus that do not know one another's sentences."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.splits import sentence_key, split_pairs
from regard.errors import DataError

WORDS = st.sampled_from(["go", "Go!", "stop", "Stop.", "hello", "Hello?", "one two", "three", "four", "five six"])
PAIRS = st.lists(st.tuples(WORDS, WORDS.map(lambda word: f"ein {word}")), min_size=1, max_size=40)


def keys(pairs: list[tuple[str, str]]) -> set[str]:
    return {f"{side} {sentence_key(text)}" for pair in pairs for side, text in enumerate(pair)}


@given(PAIRS, st.integers(0, 3), st.integers(0, 3))
def test_no_part_shares_a_sentence_with_another(pairs: list[tuple[str, str]], valid: int, test: int) -> None:
    try:
        found = split_pairs(pairs, valid=valid, test=test)
    except DataError:
        return
    assert (len(found.valid), len(found.test)) == (valid, test)
    parts = [keys(part) for part in (found.train, found.valid, found.test)]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    kept = len(found.train) + len(found.valid) + len(found.test)
    assert kept + found.repeated + found.unfit + found.set_aside == len(pairs)


def test_the_split_does_not_depend_on_the_order() -> None:
    pairs = [(f"sentence {number}", f"Satz {number}") for number in range(200)]
    shuffled = random.Random(3).sample(pairs, len(pairs))
    assert split_pairs(pairs, valid=20, test=30) == split_pairs(shuffled, valid=20, test=30)


def test_links_of_links_are_one_group() -> None:
    chain = [("a", "x"), ("a", "y"), ("b", "y"), ("b", "z"), ("c", "w")]
    found = split_pairs(chain, valid=0, test=1)
    assert len(found.train) in (1, 4)
    assert found.set_aside == 4 - len(found.train) if len(found.train) == 1 else found.set_aside == 0


def test_what_is_unfit_or_repeated_is_left_out_and_counted() -> None:
    pairs = [("Go.", "Geh."), ("go!", "geh"), ("", "Leer."), ("Tom", "Tom!"), ("a", "b" * 50), ("Hi.", "Hallo.")]
    found = split_pairs(pairs, valid=0, test=0)
    assert found.train.count(("Go.", "Geh.")) == 1
    assert (found.repeated, found.unfit) == (1, 3)
    assert split_pairs([("so\u00adft \u200b", " weich  hier")], valid=0, test=0).train == [("soft", "weich hier")]


def test_too_few_groups() -> None:
    with pytest.raises(DataError, match=r"2 \+ 3 pairs are wanted for validation and test; there are 1 groups"):
        split_pairs([("a", "b")], valid=2, test=3)
