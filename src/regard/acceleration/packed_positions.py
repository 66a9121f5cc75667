"""What relative positions and patterns change in packed attention, by the plain layer's own functions."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from regard.layers import MultiHeadAttention


def rotated(layer: MultiHeadAttention, x_RX: Tensor, positions_R: Tensor) -> Tensor:
    """Return the queries, or the keys, of rows at these positions as they are compared; heads are side by side."""
    if layer.positions is None:
        return x_RX
    x_RH1K = x_RX.reshape(len(x_RX), -1, 1, layer.d_k)
    return layer.positions.rotate(x_RH1K, positions_R[:, None]).flatten(1)


def varied_mask(layer: MultiHeadAttention, mask: Tensor, query_index: Tensor, key_index: Tensor) -> Tensor:
    """Return an additive mask, 0 or -∞, with what the layer's pattern hides and what its positions add."""
    if layer.pattern is not None:
        mask = mask.masked_fill(~layer.pattern.allowed(query_index, key_index), -torch.inf)
    if layer.positions is not None and layer.positions.adds_bias:
        mask = mask + layer.positions.bias(mask, query_index, key_index).to(mask.dtype)
    return mask


@dataclass(frozen=True)
class PositionTables:
    """The same as tables for the kernels, for sequences up to a length."""

    rotations: Tensor | None
    """(length, K): cosines, then sines, of the pairs of a head's first and second half."""
    bias: Tensor | None
    """(H, 2 · length - 1): by key position - query position + length - 1, what is added to the score."""
    length: int

    @classmethod
    def of(cls, layer: MultiHeadAttention, length: int) -> Self:
        """Ask the layer's positions for every position, and for every distance."""
        positions = layer.positions
        if positions is None:
            return cls(None, None, length)
        index = torch.arange(length)
        # Of a first half of ones and a second of zeros, a rotation makes cosines and sines.
        probe_11TK = (torch.arange(layer.d_k) < layer.d_k // 2).float().expand(1, 1, length, layer.d_k)
        rotated_11TK = positions.rotate(probe_11TK, index)
        rotations = None if torch.equal(rotated_11TK, probe_11TK) else rotated_11TK[0, 0].contiguous()
        bias = None
        if positions.adds_bias:
            distances = torch.arange(-(length - 1), length)
            bias = positions.bias(probe_11TK, torch.zeros(1, dtype=torch.long), distances)[0, :, 0].float().contiguous()
        return cls(rotations, bias, length)
