"""The model that a run ends with: an average of its weights, or the last ones if they validate better."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from regard.training.checkpoints import Tensors
from regard.training.validation import ValidationResult


@dataclass(frozen=True)
class FinalModel:
    """Weights, where they come from, and how they validate."""

    origin: str
    """In words, what the weights are: the mean of 3 snapshots, of steps 5, 10, 14."""
    weights: Tensors
    result: ValidationResult | None = None

    @property
    def text(self) -> str:
        """Where it comes from, and how it validates."""
        return self.origin if self.result is None else f"{self.origin}: {self.result.text}"


def better_of(
    one: FinalModel, other: FinalModel, validate: Callable[[Tensors], ValidationResult]
) -> tuple[FinalModel, str]:
    """Validate two models; return the better one, of equals the one with the lower loss, and how they compare."""
    first = validate(one.weights)
    one = replace(one, result=first)
    if all(tensor.equal(other.weights[name]) for name, tensor in one.weights.items()):
        return one, ""
    second = validate(other.weights)
    other = replace(other, result=second)
    if (second.value(), -second.loss) > (first.value(), -first.loss):
        one, other = other, one
    return one, f"; chosen over {other.text}"
