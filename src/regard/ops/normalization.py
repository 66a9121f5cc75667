"""Normalisation over the features of each position."""

import torch.nn.functional as F
from torch import Tensor


def layer_norm(x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, *, eps: float = 1e-5) -> Tensor:
    """Centre and scale each row: (x - E[x]) / √(Var[x] + ε) · γ + β (first note).

    With ε = 0 this is the third note's γ · (x - μ)/σ + β. There a row of equal values, whose σ is 0, gives β.

    >>> import torch
    >>> layer_norm(torch.tensor([[1.0, 3.0], [2.0, 2.0]]), eps=0.0)
    tensor([[-1.,  1.],
            [ 0.,  0.]])
    """
    if eps > 0.0:
        return F.layer_norm(x, x.shape[-1:], gamma, beta, eps)
    # Asked of the values themselves: rounding in the mean can leave a constant row with a tiny variance.
    constant = (x == x[..., :1]).all(-1, keepdim=True)
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return _scaled(centred, variance, constant | (variance == 0), gamma, beta)


def rms_norm(x: Tensor, gamma: Tensor | None = None, *, eps: float = 1e-6) -> Tensor:
    """Scale each row by its root mean square: x / √(E[x²] + ε) · γ. With ε = 0 a row of zeros stays zero.

    >>> import torch
    >>> rms_norm(torch.tensor([[3.0, -3.0], [0.0, 0.0]]), eps=0.0)
    tensor([[ 1., -1.],
            [ 0.,  0.]])
    """
    if eps > 0.0:
        return F.rms_norm(x, x.shape[-1:], gamma, eps)
    square = x.square().mean(-1, keepdim=True)
    return _scaled(x, square, square == 0, gamma, None)


def _scaled(x: Tensor, square: Tensor, degenerate: Tensor, gamma: Tensor | None, beta: Tensor | None) -> Tensor:
    # The root is taken of 1 where it would be of 0, before the result is replaced: 0 · ∞ in the gradient is NaN.
    normalised = (x * square.masked_fill(degenerate, 1.0).rsqrt()).masked_fill(degenerate, 0.0)
    if gamma is not None:
        normalised = normalised * gamma
    return normalised if beta is None else normalised + beta
