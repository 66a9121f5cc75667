"""The texts that are most like another, by the cosine of TF-IDF vectors, and their summaries for a model to read."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.data.noise import Pair
from regard.errors import InputError

_SEPARATOR = " | "
_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return _WORD.findall(text.lower())


class TfIdf:
    """Documents as vectors of length 1, a word's weight being (1 + log n) · (1 + log((1 + N) / (1 + N_word))).

    n is how often the word comes in the document, N how many documents there are, N_word how many have the word.

    >>> index = TfIdf(["the cat sat", "the dog ran", "the dog sat down"])
    >>> index.nearest("a dog ran off")
    1
    """

    def __init__(self, documents: Sequence[str]) -> None:
        self._number: dict[str, int] = {}
        rows: list[int] = []
        columns: list[int] = []
        counts: list[int] = []
        for row, document in enumerate(documents):
            for word, count in Counter(words(document)).items():
                rows.append(row)
                columns.append(self._number.setdefault(word, len(self._number)))
                counts.append(count)
        self._size = len(documents)
        having = np.bincount(columns, minlength=len(self._number))
        self._rarity = 1.0 + np.log((1 + self._size) / (1 + having))
        order = np.argsort(columns, kind="stable")  # word by word: the documents that have it, with its weight
        self._rows = np.array(rows, dtype=np.int64)[order]
        weights = (1.0 + np.log(counts))[order] * self._rarity[np.array(columns, dtype=np.int64)[order]]
        lengths = np.sqrt(np.bincount(self._rows, weights**2, minlength=self._size))
        self._weights = weights / lengths[self._rows]
        self._starts = np.concatenate([[0], np.cumsum(having)])

    def vector(self, text: str) -> dict[int, float]:
        """Return the vector of a text: weights by the numbers of words. Words that no document has are left out."""
        counts = Counter(number for word in words(text) if (number := self._number.get(word)) is not None)
        weights = {number: (1.0 + np.log(count)) * self._rarity[number] for number, count in counts.items()}
        length = float(np.sqrt(sum(weight**2 for weight in weights.values())))
        return {number: float(weight / length) for number, weight in weights.items()}

    def similarities(self, text: str) -> NDArray[np.float64]:
        """Return the cosine of a text with each of the documents."""
        found = np.zeros(self._size)
        for number, weight in self.vector(text).items():
            part = slice(self._starts[number], self._starts[number + 1])
            found[self._rows[part]] += weight * self._weights[part]
        return found

    def nearest(self, text: str) -> int:
        """Return the number of the document that is most like a text; of equals, the first."""
        return int(self.similarities(text).argmax())


class SimilarDocuments:
    """Documents with their summaries, for writing the summary of another.

    >>> known = SimilarDocuments([("a cat sat", "cats"), ("a dog ran", "dogs"), ("a dog sat", "tired dogs")])
    >>> known.before("the dog ran off", 2)
    'dogs | tired dogs | the dog ran off'
    >>> known.before("A dog ran.", 2)
    'tired dogs | cats | A dog ran.'
    """

    def __init__(self, pairs: Sequence[Pair]) -> None:
        kept = [(document, summary) for document, summary in pairs if summary.strip()]
        if not kept:
            raise InputError("there are no documents with summaries that another could be similar to")
        self._summaries = [summary for _, summary in kept]
        self._numbers: dict[tuple[str, ...], list[int]] = {}
        for number, (document, _) in enumerate(kept):
            self._numbers.setdefault(tuple(words(document)), []).append(number)
        self._index = TfIdf([document for document, _ in kept])

    def most_similar(self, document: str, count: int) -> list[int]:
        """Return the numbers of the documents most like this one, with summaries; those of the same words excluded."""
        if count < 1:
            raise InputError(f"count is {count}; at least 1 was expected")
        cosines = self._index.similarities(document)
        cosines[self._numbers.get(tuple(words(document)), [])] = 0.0
        count = min(count, len(cosines))
        least = np.partition(cosines, -count)[-count]
        found = np.flatnonzero((cosines >= least) & (cosines > 0.0))
        return [int(number) for number in found[np.argsort(-cosines[found], kind="stable")][:count]]

    def before(self, document: str, count: int) -> str:
        """Return a document with the summaries of the documents most like it before it, the most similar first."""
        summaries = (self._summaries[number] for number in self.most_similar(document, count))
        return _SEPARATOR.join([*summaries, document])


def cosine(one: dict[int, float], other: dict[int, float]) -> float:
    """Return the cosine of two vectors of length 1."""
    return sum(weight * other.get(number, 0.0) for number, weight in one.items())
