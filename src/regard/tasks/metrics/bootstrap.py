"""Metrics that can score any sample of the examples, and so have bootstrap intervals."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError, shown
from regard.tasks.metrics.metric import MetricFunction, References, Score

SEED = 12345  # sacrebleu's

Weights = NDArray[np.int64]
"""How often each example counts."""


class WeightedMetric(ABC):
    """A metric as a function of how often each example counts: once each, or as often as a bootstrap sample has it."""

    def __init__(self, name: str, signature: str | None = None) -> None:
        self.name, self._signature = name, signature or name

    @property
    def signature(self) -> str:
        """The metric and its settings."""
        return self._signature

    @abstractmethod
    def weighted(self, texts: Sequence[str], references: References) -> Callable[[Weights], float]:
        """Return the value as a function of the examples' weights; what does not depend on them is computed once."""

    def score(self, texts: Sequence[str], references: References, *, bootstrap: int = 0) -> Score:
        """Return the score of texts, with an interval from so many bootstrap samples if there are at least 2."""
        value_of = self.weighted(texts, references)
        value = value_of(np.ones(len(texts), dtype=np.int64))
        if bootstrap < 2:
            return Score(value, self.signature, f"{self.name} = {value:.2f}")
        low, high = _interval(value_of, len(texts), bootstrap)
        text = f"{self.name} = {value:.2f} (95 % interval: {low:.2f} to {high:.2f})"
        return Score(value, f"{self.signature}|bs:{bootstrap}|seed:{SEED}", text, (low, high))


class MeanMetric(WeightedMetric):
    """The mean over examples of a value from 0 to 1.

    >>> MeanMetric("same_end", lambda text, references: float(text[-1:] in {r[-1:] for r in references})).score(
    ...     ["Yes.", "No"], [("No.", "Never!"), ("Well.",)]
    ... ).text
    'same_end = 50.00'
    """

    def __init__(self, name: str, value: Callable[[str, tuple[str, ...]], float], signature: str | None = None) -> None:
        super().__init__(name, signature)
        self._value = value

    def weighted(self, texts: Sequence[str], references: References) -> Callable[[Weights], float]:
        """Return the weighted mean of the examples' values."""
        values = np.array([self._value(text, some) for text, some in zip(texts, references, strict=True)], dtype=float)
        return lambda weights: float(100.0 * (weights @ values) / weights.sum())


class FunctionMetric(WeightedMetric):
    """A metric that is a plain function of all texts and references; it is called again for each bootstrap sample."""

    def __init__(self, function: MetricFunction) -> None:
        super().__init__(getattr(function, "__name__", type(function).__name__))
        self._function = function

    def weighted(self, texts: Sequence[str], references: References) -> Callable[[Weights], float]:
        """Return the function's value for texts, each repeated as often as it counts."""

        def value_of(weights: Weights) -> float:
            sample = np.repeat(np.arange(len(texts)), weights).tolist()
            value = self._function([texts[i] for i in sample], [references[i] for i in sample])
            try:
                return float(value)
            except (TypeError, ValueError) as error:
                raise InputError(f"the metric {self.name} returned {shown(value)}; expected a number") from error

        return value_of


def _interval(value_of: Callable[[Weights], float], examples: int, samples: int) -> tuple[float, float]:
    """Return the 2.5th and the 97.5th percentile of the values of samples, sampled with replacement."""
    rng = np.random.default_rng(SEED)
    draws = (rng.integers(examples, size=examples) for _ in range(samples))
    values = [value_of(np.bincount(sampled, minlength=examples)) for sampled in draws]
    low, high = np.percentile(values, (2.5, 97.5))
    return float(low), float(high)
