"""Splits of a corpus into training, validation and test data that share no sentence."""

import hashlib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from regard.data.noise import Pair
from regard.errors import DataError
from regard.files import replaced_files

_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u2060\ufeff"))
_LOPSIDED = 4  # pairs with a larger length ratio are not translations


PARTS = ("test", "valid", "train")


Item = TypeVar("Item", bound=Pair | str)
"""A pair, or a line of a file that holds one."""


@dataclass(frozen=True)
class Split(Generic[Item]):
    """The parts of a corpus, and what was left out of them."""

    train: list[Item]
    valid: list[Item]
    test: list[Item]
    repeated: int
    """Pairs that came twice, up to case, spaces and punctuation around them."""
    unfit: int
    """Pairs with an empty side, two equal sides, or one side far longer than the other."""
    set_aside: int
    """Pairs beside the one that a group gives to validation or test."""


def split_pairs(pairs: Iterable[Pair], *, valid: int, test: int) -> Split[Pair]:
    """Clean pairs and split them, so that neither side of a test pair is seen in training.

    >>> pairs = [("Hi.", "Hallo!"), ("Hello!", "Hallo."), ("Go.", "Geh."), ("Go!", "Los!")]
    >>> found = split_pairs(pairs, valid=0, test=1)
    >>> found.train, found.test
    ([('Go!', 'Los!'), ('Go.', 'Geh.')], [('Hi.', 'Hallo!')])

    Pairs that share a sentence, up to case, spaces and punctuation around it, belong to one group, and so do those that
    are linked by others in between. Groups are ordered by the SHA-256 of the smallest key in them. The first give one
    pair each to the test part, the next one each to validation; all the others are for training. Within a part, pairs
    are ordered by their own SHA-256: neighbours have nothing in common.
    """
    kept, repeated, unfit = _cleaned(pairs)
    return _split(kept, kept, valid=valid, test=test, repeated=repeated, unfit=unfit)


def split_documents(lines: Iterable[tuple[str, Pair]], *, valid: int, test: int) -> Split[str]:
    """Split lines that each hold a document and its summary, so that neither of a test line is seen in training.

    They are grouped as pairs are, and stay as they are. Left out are lines whose document and summary came before, and
    those where one of them is empty or both are equal.
    """
    kept: list[str] = []
    pairs: list[Pair] = []
    seen: set[Pair] = set()
    repeated = unfit = 0
    for line, (document, summary) in lines:
        key = _digest(document), _digest(summary)
        if not document.strip() or not summary.strip() or key[0] == key[1]:
            unfit += 1
        elif key in seen:
            repeated += 1
        else:
            seen.add(key)
            kept.append(line)
            pairs.append(key)
    return _split(kept, pairs, valid=valid, test=test, repeated=repeated, unfit=unfit)


def _digest(text: str) -> str:
    """Return what stands for a text and all that are the same: documents are long to remember."""
    return hashlib.sha256(sentence_key(text).encode()).hexdigest()


def _split(items: list[Item], pairs: list[Pair], *, valid: int, test: int, repeated: int, unfit: int) -> Split[Item]:
    """Split items by the groups of the pairs that they hold."""
    groups = _groups(pairs)
    if len(groups) <= valid + test:
        raise DataError(
            f"{valid} + {test} pairs were requested for validation and test (--valid, --test), "
            f"and training needs some too; only {len(groups):,} of the pairs share no sentence"
        )
    order = sorted(groups, key=lambda key: hashlib.sha256(key.encode()).digest())
    for_test, for_valid = order[:test], order[test : test + valid]
    taken = {member for key in (*for_test, *for_valid) for member in groups[key]}
    return Split(
        train=_mixed([item for number, item in enumerate(items) if number not in taken]),
        valid=_mixed([items[groups[key][0]] for key in for_valid]),
        test=_mixed([items[groups[key][0]] for key in for_test]),
        repeated=repeated,
        unfit=unfit,
        set_aside=len(taken) - valid - test,
    )


def write_split(found: Split[Item], directory: Path, suffix: str = "tsv") -> dict[Path, int]:
    """Write train.tsv, valid.tsv and test.tsv, training last: with it, all are there. Give how many pairs each has."""
    names = [f"{part}.{suffix}" for part in PARTS]
    parts = dict(zip(names, (found.test, found.valid, found.train), strict=True))
    with replaced_files(directory, last=names[-1]) as fresh:
        for name, items in parts.items():
            (fresh / name).write_text("".join(f"{_line(item)}\n" for item in items), encoding="utf-8")
    return {directory / name: len(items) for name, items in parts.items()}


def _line(item: Pair | str) -> str:
    return item if isinstance(item, str) else "\t".join(item)


def _mixed(items: list[Item]) -> list[Item]:
    return sorted(items, key=lambda item: hashlib.sha256(_line(item).encode()).digest())


def sentence_key(text: str) -> str:
    """Return what makes a sentence the same as another: its letters, not its case, spaces or outer punctuation.

    >>> sentence_key("  „Wie  geht's?“") == sentence_key("wie geht's")
    True
    """
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    bare = folded.strip("".join({c for c in set(folded) if unicodedata.category(c)[0] in "PZ"}))
    return bare or folded


def _cleaned(pairs: Iterable[Pair]) -> tuple[list[Pair], int, int]:
    kept: list[Pair] = []
    seen: set[Pair] = set()
    repeated = unfit = 0
    for pair in pairs:
        source, target = map(_tidied, pair)
        key = sentence_key(source), sentence_key(target)
        short, long = sorted((len(source), len(target)))
        if not short or key[0] == key[1] or long > _LOPSIDED * short + 20:
            unfit += 1
        elif key in seen:
            repeated += 1
        else:
            seen.add(key)
            kept.append((source, target))
    return kept, repeated, unfit


def _tidied(text: str) -> str:
    """Take out what cannot be seen, and spaces beyond one."""
    return " ".join(unicodedata.normalize("NFC", text).translate(_INVISIBLE).split())


def _groups(pairs: list[Pair]) -> dict[str, list[int]]:
    """Return the numbers of the pairs of each connected group, by the smallest key in it."""
    parent: dict[str, str] = {}

    def root(key: str) -> str:
        parent.setdefault(key, key)
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    # The side belongs to the key: "Angst" in one language is not "Angst" in the other.
    keys = [(f"1 {sentence_key(source)}", f"2 {sentence_key(target)}") for source, target in pairs]
    for one, other in keys:
        first, second = sorted((root(one), root(other)))
        parent[second] = first
    groups: dict[str, list[int]] = {}
    for number, (one, _) in enumerate(keys):
        groups.setdefault(root(one), []).append(number)
    return groups
