"""Summaries without a model: what any summarizer has to be better than."""

import statistics
from collections.abc import Mapping, Sequence

from regard.data.sentences import split_sentences
from regard.data.similarity import TfIdf, cosine
from regard.tasks import score

Document = Mapping[str, str]
"""With `document` and `summary`."""


def sentences(text: str) -> list[str]:
    """Return the sentences of a text; there is at least one, the text itself."""
    return [sentence for sentence, _ in split_sentences(text) if sentence] or [text]


def cut(text: str, length: int) -> str:
    """Return the first words of a text."""
    return " ".join(text.split()[:length])


def mean_length(summaries: Sequence[str]) -> int:
    """Return how many words summaries have on average."""
    return max(1, round(statistics.fmean(len(summary.split()) for summary in summaries)))


def central_sentence(document: str, index: TfIdf) -> str:
    """Return the sentence that is most like the whole document; of equals, the first."""
    whole = index.vector(document)
    return max(sentences(document), key=lambda sentence: cosine(index.vector(sentence), whole))


def oracle_sentence(document: str, summary: str) -> str:
    """Return the sentence with the highest ROUGE-1 against the reference, which no summarizer can know."""
    return max(sentences(document), key=lambda sentence: score("rouge1", [sentence], [summary]).value)


def baselines(train: Sequence[Document], test: Sequence[Document]) -> dict[str, list[str]]:
    """Return the summaries of the test documents by each baseline."""
    length = mean_length([example["summary"] for example in train])
    documents = [example["document"] for example in test]
    index = TfIdf([example["document"] for example in train])
    central = [central_sentence(document, index) for document in documents]
    return {
        f"first sentence, cut to {length} words": [cut(sentences(document)[0], length) for document in documents],
        "summary of the most similar training document": [
            train[index.nearest(document)]["summary"] for document in documents
        ],
        "most central sentence": central,
        f"most central sentence, cut to {length} words": [cut(sentence, length) for sentence in central],
    }


def oracle(test: Sequence[Document]) -> list[str]:
    """Return the best sentence of each test document, chosen by its reference."""
    return [oracle_sentence(example["document"], example["summary"]) for example in test]
