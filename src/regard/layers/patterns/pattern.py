"""Base class of sparse attention patterns: a mask and the blocks of keys that it allows."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.layers.kv_cache import KeyValueCache, PastCache


class Pattern(nn.Module):
    """Which keys a query may attend to in self-attention, as a mask and as blocks.

    The mask is the definition. The blocks say where it can be True at all: attention over a long sequence computes only
    those. Neither depends on the length of the sequence, so that padding changes nothing. A pattern has no parameters;
    it is a module so that `model.modules()` includes it.
    """

    whole_blocks = False
    """Whether the mask is True everywhere in the blocks of keys that it leaves."""
    longest: int | None = None
    """How many positions a sequence may have, where there is an end to the pattern."""

    def __init__(self, block: int) -> None:
        super().__init__()
        if block < 1:
            raise InputError(f"the block of a pattern is {block}; it has at least one position")
        self.block = block
        """C: how many positions are computed together."""

    @abstractmethod
    def allowed(self, query_index: Tensor, key_index: Tensor) -> Tensor:
        """Return the mask of queries at positions (…, T) and keys at positions (…, S) of their sequence.

        The result is (T, S), or (B, 1, T, S) where rows differ. Causality is not part of it.
        """

    @abstractmethod
    def key_blocks(self, number: int, count: int) -> Sequence[int]:
        """Return the blocks of keys, in order, that the queries of a block may attend to, of `count` blocks."""

    def repeats(self, number: int, count: int) -> bool:
        """Whether the mask of a block of queries over its blocks of keys is that of the block before it."""
        return False

    def start_cache(self) -> PastCache:
        """Return an empty cache of what decoding has to keep."""
        return KeyValueCache()

    def dense(self, length: int, device: torch.device | None = None) -> Tensor:
        """Return the mask (T, T) of a sequence."""
        self.check_length(length)
        index = torch.arange(length, device=device)
        return self.allowed(index, index)

    def check_length(self, length: int) -> None:
        """Raise an `InputError` if a sequence is longer than the pattern."""
        if self.longest is not None and length > self.longest:
            raise InputError(
                f"a sequence of {length} positions is longer than the pattern, which ends at {self.longest}"
            )


def of_queries(x: Tensor) -> Tensor:
    """Return what holds for each query, (T) or (B, T), as a column of scores: (T, 1) or (B, 1, T, 1)."""
    return x[:, None] if x.dim() == 1 else x[:, None, :, None]


def of_keys(x: Tensor) -> Tensor:
    """Return what holds for each key, (S) or (B, S), as a row of scores: (1, S) or (B, 1, 1, S)."""
    return x[None, :] if x.dim() == 1 else x[:, None, None, :]
