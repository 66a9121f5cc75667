"""Base class of position encodings inside attention."""

from typing import Any

from torch import Tensor, nn


class RelativePositions(nn.Module):
    """The base of position encodings that are part of attention. By itself it changes nothing.

    An encoding overrides what it needs: `rotate` changes queries and keys before they are compared (and before keys are
    cached), `bias` is added to the scores, `values` is added to the output. Positions are integers: (T) where all rows
    agree, else (B, T). Any two ranges of queries and keys may be asked for, so that long sequences are computed in
    blocks.
    """

    adds_bias = False
    """Whether there is a `bias`; true of a subclass that defines one, unless it says otherwise."""
    adds_values = False
    """Whether there are `values`, likewise."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for method, flag in (("bias", "adds_bias"), ("values", "adds_values")):
            nearest = next(base for base in cls.__mro__ if method in vars(base) or flag in vars(base))
            if flag not in vars(nearest):
                setattr(cls, flag, True)

    def rotate(self, x_BHTK: Tensor, positions: Tensor) -> Tensor:
        """Return queries or keys as they are compared, given their positions."""
        return x_BHTK

    def bias(self, query_BHTK: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Return what is added to the scores; it broadcasts to BHTS."""
        return query_BHTK.new_zeros(1)

    def values(self, weights_BHTS: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Return what is added to the output BHTV, given the attention weights."""
        return weights_BHTS.new_zeros(1)


def distances(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """Return key position - query position for each pair: (T, S), or (B, 1, T, S) where rows differ.

    >>> import torch
    >>> distances(torch.arange(2), torch.arange(3))
    tensor([[ 0,  1,  2],
            [-1,  0,  1]])
    """
    distance = key_positions[..., None, :] - query_positions[..., :, None]
    return distance if distance.dim() == 2 else distance[:, None]
