"""TF-IDF by numpy: the same numbers as by hand, and the nearest document."""

import math

import numpy as np
import pytest

from regard.data.similarity import SimilarDocuments, TfIdf, cosine, words
from regard.errors import InputError

DOCUMENTS = ["the cat sat on the mat", "the dog ran", "a dog and a cat ran to the park"]


def by_hand(documents: list[str], text: str) -> dict[str, float]:
    """Return the vector of a text, word by word, by the formula in the docstring."""
    weights = {}
    for word in set(words(text)):
        having = sum(word in words(document) for document in documents)
        if having:
            rarity = 1 + math.log((1 + len(documents)) / (1 + having))
            weights[word] = (1 + math.log(words(text).count(word))) * rarity
    length = math.sqrt(sum(weight**2 for weight in weights.values()))
    return {word: weight / length for word, weight in weights.items()}


def test_words_are_in_lower_case_and_without_punctuation() -> None:
    assert words("Don't Über-think (BLEU-4).") == ["don", "t", "über", "think", "bleu", "4"]


@pytest.mark.parametrize("text", ["the dog sat on the dog", "mat", "a cat, unheard of"])
def test_similarities_are_the_cosines_of_the_formula(text: str) -> None:
    expected = []
    for document in DOCUMENTS:
        one, other = by_hand(DOCUMENTS, text), by_hand(DOCUMENTS, document)
        expected.append(sum(weight * other.get(word, 0.0) for word, weight in one.items()))
    np.testing.assert_allclose(TfIdf(DOCUMENTS).similarities(text), expected, atol=1e-12)


def test_a_document_is_nearest_to_itself_with_cosine_one() -> None:
    index = TfIdf(DOCUMENTS)
    for number, document in enumerate(DOCUMENTS):
        assert index.nearest(document) == number
        assert index.similarities(document)[number] == pytest.approx(1.0)
        assert cosine(index.vector(document), index.vector(document)) == pytest.approx(1.0)


def test_a_text_of_unknown_words_is_like_no_document() -> None:
    index = TfIdf([*DOCUMENTS, ""])
    assert index.vector("zebra ???") == {}
    assert not index.similarities("zebra").any()
    assert index.nearest("zebra") == 0


def test_similar_documents_come_in_the_order_of_their_cosine_and_equals_in_theirs() -> None:
    known = SimilarDocuments([(document, str(n)) for n, document in enumerate([*DOCUMENTS, *DOCUMENTS])])
    for text in ("the dog", "a cat on a mat"):
        cosines = TfIdf([*DOCUMENTS, *DOCUMENTS]).similarities(text)
        order = sorted(np.flatnonzero(cosines).tolist(), key=lambda n: (-cosines[n], n))
        assert known.most_similar(text, 4) == order[:4]
        assert known.most_similar(text, 99) == order
    assert known.most_similar("zebra", 4) == []


def test_a_document_is_not_compared_with_itself_or_its_equals() -> None:
    known = SimilarDocuments([(document, str(n)) for n, document in enumerate([*DOCUMENTS, DOCUMENTS[1]])])
    assert sorted(known.most_similar("The  dog\nran!", 9)) == [0, 2]
    assert SimilarDocuments([("a", "b")]).before("a", 3) == "a"


def test_summaries_that_are_empty_are_no_help() -> None:
    assert SimilarDocuments([("a cat sat", " "), ("a dog sat", "dogs")]).before("sat", 2) == "dogs | sat"
    with pytest.raises(InputError, match="no documents with summaries"):
        SimilarDocuments([("a", "")])
    with pytest.raises(InputError, match="count is 0"):
        SimilarDocuments([("a", "b")]).before("a", 0)
