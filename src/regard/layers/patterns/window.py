"""A sliding window: each query attends to its neighbors (Beltagy et al. 2020)."""

from collections.abc import Sequence

from torch import Tensor

from regard.errors import InputError
from regard.layers.kv_cache import PastCache
from regard.layers.patterns.pattern import Pattern, of_keys
from regard.layers.patterns.window_cache import WindowCache
from regard.layers.positions.relative import distances


class SlidingWindow(Pattern):
    """Query i attends to the keys j with |i - j| ≤ size, and to the first `sinks` positions (Xiao et al. 2024).

    >>> SlidingWindow(1, sinks=1).dense(5).int()
    tensor([[1, 1, 0, 0, 0],
            [1, 1, 1, 0, 0],
            [1, 1, 1, 1, 0],
            [1, 0, 1, 1, 1],
            [1, 0, 0, 1, 1]], dtype=torch.int32)
    """

    def __init__(self, size: int, *, sinks: int = 0, block: int | None = None) -> None:
        if size < 1:
            raise InputError(f"the window is {size}; it reaches at least 1 position to each side")
        if sinks < 0:
            raise InputError(f"sinks is {sinks}; a number of positions is at least 0")
        # Below 64 positions a block costs more than what it computes; above 256 it computes more than is needed.
        super().__init__(min(max(size, 64), 256) if block is None else block)
        self.size, self.sinks = size, sinks

    def allowed(self, query_index: Tensor, key_index: Tensor) -> Tensor:
        """Return who may attend to whom."""
        near = distances(query_index, key_index).abs() <= self.size
        return near | of_keys(key_index < self.sinks) if self.sinks else near

    def key_blocks(self, number: int, count: int) -> Sequence[int]:
        """Return the blocks within reach, and those of the sinks."""
        near = range(max(0, number - self._reach), min(count, number + self._reach + 1))
        return [*range(min(self._sink_blocks, near.start)), *near]

    def repeats(self, number: int, count: int) -> bool:
        """Whether the mask is that of the block before: all but where the sequence begins and ends."""
        return number - 1 - self._reach >= self._sink_blocks and number + self._reach < count - 1

    def start_cache(self) -> PastCache:
        """Return an empty cache that keeps the window and the sinks."""
        return WindowCache(self.size, self.sinks)

    @property
    def _reach(self) -> int:
        return -(-self.size // self.block)

    @property
    def _sink_blocks(self) -> int:
        return -(-self.sinks // self.block)
