"""What a metric is, and the score that it returns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

References = Sequence[tuple[str, ...]]
"""For each text, the strings that are acceptable."""

MetricFunction = Callable[[Sequence[str], References], float]
"""A metric as a plain function: texts and the references of each to a value from 0 to 100."""


@dataclass(frozen=True)
class Score:
    """A score and how it was computed."""

    value: float
    """From 0 to 100."""
    signature: str
    """What makes it comparable: the metric's own statement of its settings."""
    text: str
    """The score in the metric's own words."""
    interval: tuple[float, float] | None = None
    """The 95 % bootstrap interval, where one was requested."""

    @property
    def name(self) -> str:
        """What the metric calls itself: BLEU, chrF2, exact."""
        return self.text.partition(" = ")[0]


@runtime_checkable
class Metric(Protocol):
    """Scores texts against references; `MeanMetric` and `WeightedMetric` are the bases for a metric of your own."""

    @property
    def name(self) -> str:
        """The name by which the metric is requested."""
        ...

    def score(self, texts: Sequence[str], references: References, *, bootstrap: int = 0) -> Score:
        """Return the score of texts, with an interval from so many bootstrap samples if there are at least 2."""
        ...
