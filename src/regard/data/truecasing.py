"""Capitals: taken from a text that has nothing else, and restored as words usually have them (Lita et al. 2003).

A translation model that has learned from ordinary text knows words by their capitals: in German, nouns from verbs.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from regard.errors import ModelError
from regard.files import read_json, replaced_file

CAPITALS = "capitals.json"
"""The file of a model directory: the words of each language that are not in lower case."""

_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_SENTENCE_START = re.compile(r"(?:^|(?<=[.!?…]\s))\W*\w")


class Truecaser:
    """Knows how words are usually written within sentences.

    >>> caser = Truecaser.learn({"de": ["Das ist ein Buch.", "Hier ist dein Buch!", "Wo ist mein Buch?"]})
    >>> caser.restored("wo ist das buch? es ist hier.", "de")
    'Wo ist das Buch? Es ist hier.'
    """

    def __init__(self, words: Mapping[str, Iterable[str]]) -> None:
        self._words = {language: {word.lower(): word for word in some} for language, some in words.items()}

    @classmethod
    def learn(cls, sentences: Mapping[str, Iterable[str]], *, fewest: int = 3) -> Self:
        """Learn from sentences of each language: words that have capitals more often than not, and often enough."""
        return cls({language: _usual(some, fewest) for language, some in sentences.items()})

    def restored(self, text: str, language: str) -> str:
        """Return a text with the usual capitals of words, and of the first letter of sentences."""
        words = self._words.get(language)
        if words is None:
            return text
        text = _WORD.sub(lambda found: words.get(found[0].lower(), found[0]), text)
        return _SENTENCE_START.sub(lambda found: found[0][:-1] + found[0][-1].upper(), text)

    def to_json(self) -> str:
        """Return the words of each language as JSON."""
        words = {language: sorted(some.values()) for language, some in self._words.items()}
        return json.dumps(words, ensure_ascii=False, separators=(",", ":"))

    def save(self, path: Path) -> None:
        """Write the words to a file."""
        with replaced_file(path) as new:
            new.write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file that `save` wrote."""
        content = read_json(path)
        for language, words in content.items():
            if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
                raise ModelError(f"{path}: {language!r} is not a list of words")
        return cls(content)


def _usual(sentences: Iterable[str], fewest: int) -> Iterable[str]:
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in sentences:
        if sentence.isupper():
            continue
        starts = {found.end() - 1 for found in _SENTENCE_START.finditer(sentence)}
        for found in _WORD.finditer(sentence):
            if found.start() not in starts:
                forms[found[0].lower()][found[0]] += 1
    for word, counts in forms.items():
        form, count = counts.most_common(1)[0]
        if form != word and count >= fewest and 2 * count > counts.total():
            yield form


def without_capitals(text: str) -> str:
    """Return a text in capitals in lower case, but for the first letter of a sentence; any other text as it is.

    >>> without_capitals("ICH BIN MÜDE. UND DU?"), without_capitals("Die NASA")
    ('Ich bin müde. Und du?', 'Die NASA')

    A text in capitals has two words or more and no letter in lower case.
    """
    letters = text.replace("ß", "")
    if not letters.isupper() or sum(any(map(str.isupper, word)) for word in letters.split()) < 2:
        return text
    return _SENTENCE_START.sub(lambda match: match[0].upper(), text.lower())
