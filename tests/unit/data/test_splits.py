"""Parts of a corpus that do not know one another's sentences."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.splits import sentence_key, split_documents, split_pairs, write_split
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
    with pytest.raises(
        DataError,
        match=r"2 \+ 3 pairs were requested for validation and test .*; only 1 of the pairs share no sentence",
    ):
        split_pairs([("a", "b")], valid=2, test=3)


def test_documents_and_summaries_of_a_part_are_in_no_other(tmp_path: Path) -> None:
    pairs = [(f"Document {n % 150}. {'word ' * 50}", f"Summary {n % 120}.") for n in range(400)]
    lines = [(json.dumps({"id": n, "d": pair[0], "s": pair[1]}), pair) for n, pair in enumerate(pairs)]
    lines += [("{}", (" ", "empty")), ("{}", ("Same.", "same")), ("{}", pairs[0])]
    found = split_documents(lines, valid=3, test=4)
    parts = [
        {(side, json.loads(line)[side]) for line in part for side in "ds"}
        for part in (found.train, found.valid, found.test)
    ]
    assert (len(found.valid), len(found.test), found.unfit, found.repeated) == (3, 4, 2, 1)
    assert not parts[0] & (parts[1] | parts[2])
    assert not parts[1] & parts[2]
    assert len(found.train) + 7 + 3 + found.set_aside == len(lines)
    counts = write_split(found, tmp_path, "jsonl")
    assert counts[tmp_path / "test.jsonl"] == 4
    assert (tmp_path / "train.jsonl").read_text().splitlines() == found.train
