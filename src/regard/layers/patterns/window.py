"""A sliding window: each query attends to its neighbors (Beltagy et al. 2020)."""

from collections.abc import Sequence

from torch import Tensor

from regard.errors import InputError
from regard.layers.patterns.pattern import Pattern
from regard.layers.positions.relative import distances


class SlidingWindow(Pattern):
    """Query i attends to the keys j with |i - j| ≤ size, and to the first `sinks` positions (Xiao et al. 2024)."""

    def __init__(self, size: int, *, sinks: int = 0, block: int | None = None) -> None:
        if size < 1:
            raise InputError(f"the window is {size}; it reaches at least 1 position to each side")
        if sinks < 0:
            raise InputError(f"sinks is {sinks}; a number of positions is at least 0")
        super().__init__(min(max(size // 2, 16), 256) if block is None else block)
        self.size, self.sinks = size, sinks

    def allowed(self, query_index: Tensor, key_index: Tensor) -> Tensor:
        """Return who may attend to whom."""
        near = distances(query_index, key_index).abs() <= self.size
        if self.sinks == 0:
            return near
        sink = key_index < self.sinks
        return near | (sink if sink.dim() == 1 else sink[:, None, None, :])

    def key_blocks(self, number: int, count: int) -> Sequence[int]:
        """Return the blocks within reach, and those of the sinks."""
        reach = -(-self.size // self.block)
        near = range(max(0, number - reach), min(count, number + reach + 1))
        sinks = range(min(-(-self.sinks // self.block), near.start))
        return [*sinks, *near]
