"""ALiBi: a penalty on the scores that grows with the distance (Press et al. 2022)."""

import torch
from torch import Tensor

from regard.devices import to_device
from regard.layers.positions.relative import RelativePositions, distances


def alibi_slopes(num_heads: int) -> Tensor:
    """Return the slope of each head: 2^(-8/H), 2^(-16/H), … for a power of two.

    For other numbers of heads, those of the power of two below come first, then every other one of the power above.

    >>> alibi_slopes(4)
    tensor([0.2500, 0.0625, 0.0156, 0.0039], dtype=torch.float64)
    """
    power = 1 << (num_heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (head + 1) / power) for head in range(power)]
    slopes += [2.0 ** (-4.0 * (head + 1) / power) for head in range(0, 2 * power, 2)]
    return torch.tensor(slopes[:num_heads], dtype=torch.float64)


class ALiBi(RelativePositions):
    """Add -slope · |i - j| to the score of query i and key j, with a slope for each head.

    In a decoder all keys come before their query; in an encoder the penalty is the same in both directions.
    """

    adds_bias = True

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def bias(self, query_BHTK: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Return the penalties (1 or B, H, T, S)."""
        dtype = torch.promote_types(query_BHTK.dtype, torch.float32)
        slopes_H11 = to_device(alibi_slopes(self.num_heads).to(dtype), query_BHTK.device)[:, None, None]
        distance = distances(query_positions, key_positions)
        return -slopes_H11 * (distance[None, None] if distance.dim() == 2 else distance).abs()
