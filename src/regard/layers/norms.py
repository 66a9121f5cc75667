"""Normalisation as layers, with their learned scale and shift."""

import torch
from torch import Tensor, nn

from regard.ops import layer_norm, rms_norm


class LayerNorm(nn.Module):
    """(x - E[x]) / √(Var[x] + ε) · γ + β, with γ as `weight` and β as `bias`."""

    def __init__(self, d_model: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each position."""
        return layer_norm(x, self.weight, self.bias, eps=self.eps)


class RMSNorm(nn.Module):
    """x / √(E[x²] + ε) · γ, with γ as `weight`."""

    def __init__(self, d_model: int, *, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each position."""
        return rms_norm(x, self.weight, eps=self.eps)
