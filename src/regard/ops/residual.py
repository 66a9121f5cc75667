"""The residual connection in the notes' three forms."""

from collections.abc import Callable

from torch import Tensor

Function = Callable[[Tensor], Tensor]


def residual(x: Tensor, sublayer: Function) -> Tensor:
    """Add the input to the output, bare: y = Layer(x) + x (first note)."""
    return x + sublayer(x)


def pre_norm_residual(x: Tensor, sublayer: Function, norm: Function) -> Tensor:
    """Normalise before the sublayer and add after it: x + Sublayer(LayerNorm(x)) (second note)."""
    return x + sublayer(norm(x))


def post_norm_residual(x: Tensor, sublayer: Function, norm: Function) -> Tensor:
    """Add, then normalise: LayerNorm(x + Sublayer(x)) (third note, and the paper)."""
    return norm(x + sublayer(x))
