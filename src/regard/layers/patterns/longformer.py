"""A sliding window and global tokens (Longformer, Beltagy et al. 2020)."""

from collections.abc import Sequence

from torch import Tensor

from regard.errors import InputError
from regard.layers.patterns.pattern import of_queries
from regard.layers.patterns.window import SlidingWindow


class Longformer(SlidingWindow):
    """A window in which the first `global_tokens` positions attend to all keys, and all queries attend to them.

    In a causal decoder the future stays hidden from them too.

    >>> Longformer(1, global_tokens=1).dense(5).int()
    tensor([[1, 1, 1, 1, 1],
            [1, 1, 1, 0, 0],
            [1, 1, 1, 1, 0],
            [1, 0, 1, 1, 1],
            [1, 0, 0, 1, 1]], dtype=torch.int32)
    """

    def __init__(self, size: int, *, global_tokens: int = 1, block: int | None = None) -> None:
        if global_tokens < 1:
            raise InputError(f"global_tokens is {global_tokens}; without any, the pattern is a window")
        super().__init__(size, sinks=global_tokens, block=block)

    def allowed(self, query_index: Tensor, key_index: Tensor) -> Tensor:
        """Return who may attend to whom."""
        return super().allowed(query_index, key_index) | of_queries(query_index < self.sinks)

    def key_blocks(self, number: int, count: int) -> Sequence[int]:
        """Return all blocks for a block with global tokens, else those of the window and of the global tokens."""
        return range(count) if number < self._sink_blocks else super().key_blocks(number, count)
