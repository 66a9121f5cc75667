"""BLEU-4 and exact match of code, as CodeXGLUE scores code translation (Lu et al. 2021)."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.tasks.metrics.bootstrap import MeanMetric, WeightedMetric, Weights
from regard.tasks.metrics.metric import References

_ORDERS = (1, 2, 3, 4)


class CodeBleu4(WeightedMetric):
    """Corpus BLEU-4 over tokens between white space, one added to matches and possible matches of every order.

    Of several references, an n-gram may match as often as the one that has it most often, and the shortest counts for
    the brevity penalty. Not to be confused with CodeBLEU, which also compares syntax and data flow.
    """

    def __init__(self) -> None:
        super().__init__("code_bleu4", "code_bleu4|rules:codexglue|tok:whitespace|smooth:add-1|ref-length:shortest")

    def weighted(self, texts: Sequence[str], references: References) -> Callable[[Weights], float]:
        """Return the BLEU of the weighted sum of the examples' counts."""
        counts = np.array([_counts(text, some) for text, some in zip(texts, references, strict=True)])
        return lambda weights: _bleu(weights @ counts)


def _counts(text: str, references: tuple[str, ...]) -> list[int]:
    """Return the matches of each order, the possible matches of each, the length and the reference's length."""
    tokens, others = text.split(), [reference.split() for reference in references]
    matches, possible = [], []
    for order in _ORDERS:
        allowed: Counter[tuple[str, ...]] = Counter()
        for other in others:
            allowed |= _ngrams(other, order)
        matches.append((_ngrams(tokens, order) & allowed).total())
        possible.append(max(len(tokens) - order + 1, 0))
    return [*matches, *possible, len(tokens), min(map(len, others))]


def _ngrams(tokens: list[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(tokens[first:] for first in range(order)), strict=False))


def _bleu(counts: NDArray[np.int64]) -> float:
    matches, possible = counts[:4], counts[4:8]
    length, reference_length = counts[8:].tolist()
    if not length:
        return 0.0  # CodeXGLUE divides by zero here
    brevity_penalty = np.exp(min(0.0, 1.0 - reference_length / length))
    return float(100.0 * brevity_penalty * np.exp(np.mean(np.log((matches + 1.0) / (possible + 1.0)))))


def _stripped_is_reference(text: str, references: tuple[str, ...]) -> float:
    return float(text.strip() in {reference.strip() for reference in references})


CODE_BLEU4 = CodeBleu4()
CODE_EXACT = MeanMetric("code_exact", _stripped_is_reference, "code_exact|rules:codexglue|strip:yes")
