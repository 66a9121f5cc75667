"""Normalization over the features of each position, and where it stands beside a residual connection."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError


def layer_norm(x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, *, eps: float = 1e-5) -> Tensor:
    """Centre and scale each row: (x - E[x]) / √(Var[x] + ε) · γ + β (Ba et al. 2016).

    With ε = 0 this is γ · (x - μ)/σ + β. There a row of equal values, whose σ is 0, gives β.

    >>> layer_norm(torch.tensor([[1.0, 3.0], [2.0, 2.0]]), eps=0.0)
    tensor([[-1.,  1.],
            [ 0.,  0.]])
    """
    if _checked(eps) > 0.0:
        return F.layer_norm(x, x.shape[-1:], gamma, beta, eps)
    # Asked of the values themselves: rounding in the mean can leave a constant row with a tiny variance.
    constant = (x == x[..., :1]).all(-1, keepdim=True)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return _scaled((wide - wide.mean(-1, keepdim=True)).masked_fill(constant, 0.0), gamma, beta).to(x.dtype)


def rms_norm(x: Tensor, gamma: Tensor | None = None, *, eps: float = 1e-6) -> Tensor:
    """Scale each row by its root mean square: x / √(E[x²] + ε) · γ. With ε = 0 a row of zeros stays zero.

    >>> rms_norm(torch.tensor([[3.0, -3.0], [0.0, 0.0]]), eps=0.0)
    tensor([[ 1., -1.],
            [ 0.,  0.]])
    """
    if _checked(eps) > 0.0:
        return F.rms_norm(x, x.shape[-1:], gamma, eps)
    return _scaled(x.to(torch.promote_types(x.dtype, torch.float32)), gamma).to(x.dtype)


def _scaled(x: Tensor, gamma: Tensor | None, beta: Tensor | None = None) -> Tensor:
    """Divide each row by its root mean square; give zeros, and pass back zeros, where a row is zero."""
    # Without ε a row's size does not matter: brought to 1 first, its squares neither overflow nor vanish.
    size = x.detach().abs().amax(-1, keepdim=True)
    zero = size == 0
    x = x / size.masked_fill(zero, 1.0)
    # The root is taken of 1 where it would be of 0, before the result is replaced: 0 · ∞ in the gradient is NaN.
    square = x.square().mean(-1, keepdim=True).masked_fill(zero, 1.0)
    normalized = (x * square.rsqrt()).masked_fill(zero, 0.0)
    normalized = normalized if gamma is None else normalized * gamma
    return normalized if beta is None else normalized + beta


def _checked(eps: float) -> float:
    if not eps >= 0.0:
        raise InputError(f"eps is {eps}; it is added under a root and must be at least 0")
    return eps


def pre_norm_residual(x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: Callable[[Tensor], Tensor]) -> Tensor:
    """Return x + Sublayer(Norm(x)) (Xiong et al. 2020)."""
    return x + sublayer(norm(x))


def post_norm_residual(x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: Callable[[Tensor], Tensor]) -> Tensor:
    """Return Norm(x + Sublayer(x)), as in the paper."""
    return norm(x + sublayer(x))
