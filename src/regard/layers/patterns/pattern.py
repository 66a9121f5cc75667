"""What a sparse attention pattern is: a mask, and the blocks of keys that it leaves."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.layers.kv_cache import KeyValueCache, PastCache


class Pattern(nn.Module):
    """Which keys a query may attend to in self-attention, as a mask and as blocks.

    The mask is the definition. The blocks say where it can be True at all: attention over a long sequence computes only
    those. A pattern has no parameters; it is a module, so that whoever walks over a model's modules meets it.
    """

    def __init__(self, block: int) -> None:
        super().__init__()
        if block < 1:
            raise InputError(f"the block of a pattern is {block}; it has at least one position")
        self.block = block
        """C: how many positions are computed together."""

    @abstractmethod
    def allowed(self, query_index: Tensor, key_index: Tensor) -> Tensor:
        """Return who may attend to whom, given where queries (…, T) and keys (…, S) stand in their sequence.

        The result is (T, S), or (B, 1, T, S) where rows differ. Causality is not part of it.
        """

    @abstractmethod
    def key_blocks(self, number: int, count: int) -> Sequence[int]:
        """Return the blocks of keys, in order, that the queries of a block may attend to, of `count` blocks."""

    def start_cache(self) -> PastCache:
        """Return an empty cache of what decoding has to keep."""
        return KeyValueCache()

    def dense(self, length: int, device: torch.device | None = None) -> Tensor:
        """Return the mask (T, T) of a sequence."""
        index = torch.arange(length, device=device)
        return self.allowed(index, index)
