"""The residual connection (Vaswani et al. 2017, §3.1), with its norm before or after the sublayer."""

from collections.abc import Callable

from torch import Tensor

Function = Callable[[Tensor], Tensor]


def pre_norm_residual(x: Tensor, sublayer: Function, norm: Function) -> Tensor:
    """Return x + Sublayer(Norm(x)) (Xiong et al. 2020)."""
    return x + sublayer(norm(x))


def post_norm_residual(x: Tensor, sublayer: Function, norm: Function) -> Tensor:
    """Return Norm(x + Sublayer(x)), as in the paper."""
    return norm(x + sublayer(x))
