"""Augmented pairs: all pairs stay, further ones come beside them, the same each time and right on both sides."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from regard.data import TabSeparated
from regard.data.augmentation import Augmentation, augmented
from regard.data.placeholders import LETTERS
from regard.errors import RegardError

PAIRS = [(f"Tom has {n % 90 + 2} books on Monday.", f"Tom hat am Montag {n % 90 + 2} Bücher.") for n in range(3000)]
INTO_GERMAN = Augmentation(source="en", target="de", share=0.5)


def test_all_pairs_stay_and_a_share_comes_beside_them() -> None:
    found = list(augmented(iter(PAIRS), INTO_GERMAN))
    assert set(PAIRS) <= set(found)
    assert 1350 < len(found) - len(PAIRS) < 1650
    assert found == list(augmented(iter(PAIRS), INTO_GERMAN))


def test_every_form_comes_and_both_sides_agree() -> None:
    kinds = set()
    for source, target in augmented(iter(PAIRS), INTO_GERMAN):
        assert {char for char in source if char in LETTERS} == {char for char in target if char in LETTERS}
        if source == target:
            kinds.add("identity")
        elif source[1:] == source[1:].lower() and "books on" in source:
            kinds.add("folded")
        elif re.match(r"Tom has .*[א-ת]", source):
            kinds.add("inserted")
        elif "books on" not in source:
            kinds.add("pattern")
        elif (source, target) not in PAIRS:
            assert re.findall(r"\d+", source) == re.findall(r"\d+", target)
            assert source.split()[0] == target.split()[0]
            kinds.add("name" if not source.startswith("Tom ") else "small")
    assert kinds >= {"identity", "folded", "inserted", "pattern", "name"}


def test_numbers_of_the_pairs_become_placeholders_for_the_most_part() -> None:
    pairs = [("In 1999.", "Im Jahr 1999.")] * 1000
    found = list(augmented(iter(pairs), Augmentation(source="en", target="de", share=0.0)))
    assert 700 < found.count(("In א.", "Im Jahr א.")) < 900
    assert set(found) == {("In א.", "Im Jahr א."), pairs[0]}


def test_it_works_both_ways_and_without_patterns_of_the_languages() -> None:
    for languages in (("de", "en"), ("fr", "es")):
        how = Augmentation(source=languages[0], target=languages[1], share=1.0)
        assert len(list(augmented(iter(PAIRS[:100]), how))) == 200


def test_a_language_that_is_not_known_is_refused() -> None:
    with pytest.raises((RegardError, ValidationError), match="klingon"):
        Augmentation(source="klingon", target="de")


def test_a_corpus_is_augmented_as_it_is_read_for_training(tmp_path: Path) -> None:
    table = tmp_path / "pairs.tsv"
    table.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), encoding="utf-8")
    corpus = TabSeparated(path=table, augment=INTO_GERMAN)
    assert list(corpus.read()) == PAIRS
    assert len(list(corpus.pairs())) > len(PAIRS)
    assert "augmentation" in corpus.cache_key()
    assert TabSeparated(path=table).cache_key() == ""
