"""Exact match, and the accuracy and macro F1 of labels."""

from collections.abc import Callable, Sequence

import numpy as np

from regard.errors import InputError
from regard.tasks.metrics.bootstrap import MeanMetric, WeightedMetric, Weights
from regard.tasks.metrics.metric import References


def _is_reference(text: str, references: tuple[str, ...]) -> float:
    return float(text in references)


class MacroF1(WeightedMetric):
    """The mean over labels of their F1, as scikit-learn's `f1_score(average="macro", zero_division=0)`.

    The labels are those among the references or the texts.
    """

    def __init__(self) -> None:
        super().__init__("macro_f1")

    def weighted(self, texts: Sequence[str], references: References) -> Callable[[Weights], float]:
        """Return the macro F1 of weighted examples."""
        for number, some in enumerate(references, 1):
            if len(some) != 1:
                raise InputError(f"macro_f1 takes one label for each text; text {number:,} has {len(some)}")
        labels = sorted({*texts, *(label for (label,) in references)})
        number_of = {label: number for number, label in enumerate(labels)}
        predicted = np.array([number_of[text] for text in texts])
        true = np.array([number_of[label] for (label,) in references])
        correct = predicted == true

        def value_of(weights: Weights) -> float:
            both = np.bincount(true[correct], weights[correct], minlength=len(labels))
            either = np.bincount(true, weights, len(labels)) + np.bincount(predicted, weights, len(labels))
            occurs = either > 0  # a sample may lack some
            return float(100.0 * np.mean(2.0 * both[occurs] / either[occurs]))

        return value_of


EXACT = MeanMetric("exact", _is_reference)
ACCURACY = MeanMetric("accuracy", _is_reference)
MACRO_F1 = MacroF1()
