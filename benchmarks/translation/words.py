"""Write pairs of single words for de-en: words by themselves, which corpora of sentences have few of.

    python -m benchmarks.translation.words --data DIR --software DIR/software-de-en.tsv.gz

`--data` is what `benchmarks.translation.prepare` wrote. Words of Tatoeba's training part are paired by Dice's
coefficient of the sentences that they are in (Smadja et al. 1996); texts of one word come from the software corpus, as
most packages translate them. Words of `phrases.tsv` are left out. `words/2de.tsv` and `words/2en.tsv` have the source
in their first column; `words/test-2de.tsv` and `words/test-2en.tsv` hold out one word in twenty, by a hash.
"""

import hashlib
import re
from argparse import ArgumentParser
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from regard.data.corpora import read_lines
from regard.data.noise import Pair

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_FEWEST = 8
"""Sentences that a word is in."""
_SHARES = {"2en": 0.5, "2de": 0.3}
"""Of the sentences of a source word, the share that have its translation: German words are inflected more."""
_LOWEST_DICE = 0.2
_PACKAGES = 3
"""Packages that translate a text of one word alike."""


def from_sentences(pairs: list[Pair]) -> dict[str, dict[str, str]]:
    """Return the translation of single words by direction: that with the largest Dice coefficient."""
    words: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    together: Counter[Pair] = Counter()
    sentences = [tuple(set(_spelled(side)) for side in pair) for pair in pairs]
    for sides in sentences:
        for counter, side in zip(words, sides, strict=True):
            counter.update(side)
    frequent = [{word for word, count in counter.items() if count >= _FEWEST} for counter in words]
    for english, german in sentences:
        together.update((e, g) for e in english & frequent[0] for g in german & frequent[1])
    best: tuple[dict[str, tuple[float, str]], ...] = ({}, {})
    for (e, g), count in together.items():
        dice = 2 * count / (words[0][e] + words[1][g])
        for found, word, other in ((best[0], e, g), (best[1], g, e)):
            if (dice, other) > found.get(word, (0.0, "")):
                found[word] = dice, other
    into_english = {
        g: e
        for g, (dice, e) in best[1].items()
        if dice >= _LOWEST_DICE and together[e, g] >= _SHARES["2en"] * words[1][g] and len(e) > 1
    }
    into_german = {
        e: g
        for e, (_, g) in best[0].items()
        if together[e, g] >= _SHARES["2de"] * words[0][e] and into_english.get(g) == e
    }
    return {"2en": into_english, "2de": into_german}


def _spelled(sentence: str) -> list[str]:
    """Return the words of a sentence but for the first, whose capital says nothing; of a single word, without it."""
    found = _WORD.findall(sentence)
    return found[1:] if len(found) > 1 else [word.lower() for word in found]


def from_texts(rows: Iterable[tuple[str, str, str]]) -> dict[str, dict[str, str]]:
    """Return the usual translation of texts of one word, by direction."""
    packages: dict[str, dict[str, dict[str, set[str]]]] = {
        name: defaultdict(lambda: defaultdict(set)) for name in _SHARES
    }
    for english, german, package in rows:
        if _WORD.fullmatch(english) and _WORD.fullmatch(german) and len(english) > 2:
            packages["2de"][english][german].add(package)
            packages["2en"][german][english].add(package)
    found: dict[str, dict[str, str]] = {name: {} for name in _SHARES}
    for name, texts in packages.items():
        for text, translations in texts.items():
            usual, where = max(translations.items(), key=lambda item: (len(item[1]), item[0]))
            if len(where) >= max(_PACKAGES, 0.5 * sum(map(len, translations.values()))):
                found[name][text] = usual
    return found


def with_capitals(words: dict[str, str]) -> dict[str, str]:
    """Return the words, and those in lower case with a capital, too."""
    return {word.capitalize(): other.capitalize() for word, other in words.items() if word.islower()} | words


def is_held_out(word: str) -> bool:
    """Whether a word is for testing."""
    return hashlib.sha256(word.lower().encode()).digest()[0] % 20 == 0


def main(data: Path, software: Path) -> None:
    """Write the words of both directions."""
    rows = [line.split("\t") for line in read_lines(data / "tatoeba" / "train.tsv")]
    everyday = from_sentences([(row[0], row[1]) for row in rows])
    texts = from_texts((row[0], row[1], row[2]) for row in (line.split("\t") for line in read_lines(software)))
    phrases = [line.split("\t") for line in read_lines(Path(__file__).with_name("phrases.tsv"))]
    (data / "words").mkdir(exist_ok=True)
    for column, direction in enumerate(("2de", "2en")):
        ours = {phrase[column].rstrip(".!?").lower() for phrase in phrases}
        found = with_capitals(texts[direction] | everyday[direction])
        found = {word: other for word, other in found.items() if word.lower() not in ours}
        for name, held_out in (("", False), ("test-", True)):
            lines = [f"{word}\t{other}\n" for word, other in sorted(found.items()) if is_held_out(word) is held_out]
            path = data / "words" / f"{name}{direction}.tsv"
            path.write_text("".join(lines), encoding="utf-8")
            print(f"{path}: {len(lines):,} words")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    for option in ("data", "software"):
        parser.add_argument(f"--{option}", type=Path, required=True)
    options = parser.parse_args()
    main(options.data, options.software)
