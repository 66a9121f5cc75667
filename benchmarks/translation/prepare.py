"""Write the training, validation and test data of de-en: everyday sentences, and texts of free software.

    python -m benchmarks.translation.prepare --tatoeba DIR/deu.txt.gz --software DIR/software-de-en.tsv.gz --out DIR

Tatoeba is split as `regard data split` does. Of the software corpus, whole source packages are held out; pairs that
share a sentence with anything that is held out, on either side, are left out of training. The rest is divided by its
words: `everyday.tsv` has the pairs that the vocabulary of de-en spells in few pieces, `technical.tsv` a sample of the
others.
"""

import hashlib
from argparse import ArgumentParser
from collections.abc import Iterable
from pathlib import Path

from regard import models
from regard.data import TabSeparated, Tokenizer
from regard.data.corpora import read_lines
from regard.data.noise import Pair
from regard.data.splits import Split, sentence_key, split_pairs, write_split
from regard.data.tokenizer import TOKENIZER

HELD_OUT = 2000
"""Pairs of software texts for testing, and as many for validation."""
_LARGEST = 250  # pairs of a package that is held out, so that there are many packages
_MOST_PIECES = 1.9  # a word, the mean of both sides, for words of every day
_TECHNICAL = 8  # one in so many of the other pairs is kept
_FRAGMENTS = 4  # one in so many texts that are no whole sentence is kept


def split_packages(rows: Iterable[tuple[str, str, str]], held_out: set[str]) -> Split:
    """Split pairs by their source package, the third column; what shares a key with `held_out` is left out."""
    packages: dict[str, list[Pair]] = {}
    for english, german, package in rows:
        packages.setdefault(package, []).append((english, german))
    order = sorted(packages, key=lambda name: hashlib.sha256(name.encode()).digest())
    small = [name for name in order if len(packages[name]) <= _LARGEST]
    parts: dict[str, list[Pair]] = {"test": [], "valid": []}
    taken = set()
    for pairs in parts.values():
        for name in small:
            if name not in taken and len(pairs) < HELD_OUT:
                taken.add(name)
                pairs += packages[name]
        del pairs[HELD_OUT:]
    known = held_out.union(*({key for pair in packages[name] for key in keys(pair)} for name in taken))
    rest = [pair for name in order if name not in taken for pair in packages[name] if is_fit(pair)]
    train = [pair for pair in rest if known.isdisjoint(keys(pair))]
    return Split(_mixed(train), _mixed(parts["valid"]), _mixed(parts["test"]), 0, 0, len(rest) - len(train))


def keys(pair: Pair) -> tuple[str, str]:
    """Return what makes a pair share a sentence with another."""
    return f"1 {sentence_key(pair[0])}", f"2 {sentence_key(pair[1])}"


def is_fit(pair: Pair) -> bool:
    """Whether a pair is a whole sentence of at most 40 words, or one of the fragments that are kept."""
    lengths = [len(side.split()) for side in pair]
    if max(lengths) > 40 or min(lengths) < 2 or any(char in side for side in pair for char in "<>|\\=_"):
        return False
    if min(lengths) >= 5 and all(side[0].isupper() and side[-1] in ".!?" for side in pair):
        return True
    return _digest(pair)[0] % _FRAGMENTS == 0


def by_words(pairs: list[Pair], tokenizer: Tokenizer) -> tuple[list[Pair], list[Pair]]:
    """Return the pairs of everyday words, and a sample of the others."""
    pieces = [tokenizer.encode_batch([pair[side] for pair in pairs]) for side in (0, 1)]
    everyday, technical = [], []
    for pair, *sides in zip(pairs, *pieces, strict=True):
        rates = [len(tokens) / len(text.split()) for tokens, text in zip(sides, pair, strict=True)]
        if sum(rates) / 2 <= _MOST_PIECES:
            everyday.append(pair)
        elif _digest(pair)[1] % _TECHNICAL == 0:
            technical.append(pair)
    return everyday, technical


def _digest(pair: Pair) -> bytes:
    return hashlib.sha256("\t".join(pair).encode()).digest()


def _mixed(pairs: list[Pair]) -> list[Pair]:
    return sorted(pairs, key=_digest)


def prepare(tatoeba: Path, software: Path, out: Path) -> None:
    """Write both corpora's parts below a directory."""
    everyday = split_pairs(TabSeparated(path=tatoeba).pairs(), valid=2000, test=2000)
    write_split(everyday, out / "tatoeba")
    held_out = {key for pair in (*everyday.valid, *everyday.test) for key in keys(pair)}
    rows = (line.split("\t") for line in read_lines(software))
    found = split_packages(((row[0], row[1], row[2]) for row in rows), held_out)
    for path, count in write_split(found, out / "software").items():
        print(f"{path}: {count:,} pairs")
    parts = by_words(found.train, Tokenizer.load(models.path_of("de-en") / TOKENIZER))
    for name, pairs in zip(("everyday", "technical"), parts, strict=True):
        path = out / "software" / f"{name}.tsv"
        path.write_text("".join(f"{english}\t{german}\n" for english, german in pairs), encoding="utf-8")
        print(f"{path}: {len(pairs):,} pairs")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    for name in ("tatoeba", "software", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    for directory in ("tatoeba", "software"):
        (options.out / directory).mkdir(parents=True, exist_ok=True)
    prepare(options.tatoeba, options.software, options.out)
