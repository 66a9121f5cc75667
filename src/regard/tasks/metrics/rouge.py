"""ROUGE-1, ROUGE-2 and ROUGE-L (Lin 2004) as the `rouge-score` package computes them."""

from functools import lru_cache
from importlib.metadata import version
from typing import Any, Literal

from regard.tasks.metrics.bootstrap import MeanMetric


class Rouge(MeanMetric):
    """The mean F-measure, words stemmed; of several references, the one with the highest F-measure.

    `rouge-score` lower-cases texts and keeps the letters a-z and digits alone: `Übung` is the word `bung`, and a text
    in another script has no words and scores 0, as an empty one does, even against itself.
    """

    def __init__(self, name: Literal["rouge1", "rouge2", "rougeL"]) -> None:
        super().__init__(name, self._f_measure)

    @property
    def signature(self) -> str:
        """The metric and its settings."""
        return f"{self.name}|measure:f|stemmer:porter|chars:a-z0-9|version:rouge-score-{version('rouge-score')}"

    def _f_measure(self, text: str, references: tuple[str, ...]) -> float:
        return float(_scorer(self.name).score_multi(references, text)[self.name].fmeasure)


@lru_cache
def _scorer(name: str) -> Any:
    """Return the package's scorer, with its own tokenizer and stemmer; the stem of a word is found once."""
    from nltk.stem.porter import PorterStemmer  # costly to import, as is the package
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenize import tokenize

    class Tokenizer:
        stem = staticmethod(lru_cache(maxsize=2**17)(PorterStemmer().stem))

        def tokenize(self, text: str) -> Any:
            return tokenize(text, stemmer=self)

    return RougeScorer([name], tokenizer=Tokenizer())
