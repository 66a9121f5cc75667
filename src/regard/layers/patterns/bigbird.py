"""BigBird: a window, global tokens and random keys, all in blocks (Zaheer et al. 2020)."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.errors import InputError
from regard.layers.patterns.pattern import Pattern, of_keys, of_queries
from regard.ops.rng import mixed


class RandomBlocks(NamedTuple):
    """Which blocks a block samples: some of those between the global ones and its window."""

    window_blocks: int
    global_blocks: int
    random_blocks: int
    seed: int
    layer: int

    def sampled(self, numbers: Tensor) -> Tensor:
        """Return the blocks that each of these blocks samples (…, random_blocks), -1 where there are not so many.

        They differ from one another, by Floyd's algorithm: a repeated one is replaced by the last candidate.
        """
        candidates = numbers - self.window_blocks - self.global_blocks
        chosen = numbers.new_full((*numbers.shape, self.random_blocks), -1)
        for draw in range(self.random_blocks):
            last = candidates - self.random_blocks + draw
            word = torch.full_like(numbers, self.seed)
            for key in (self.layer, numbers, draw):
                word = mixed(word + 1) ^ key
            picked = mixed(word + 1).bitwise_and(2**62 - 1) % (last + 1).clamp(min=1)
            repeated = (chosen == picked[..., None]).any(-1)
            chosen[..., draw] = torch.where(last < 0, -1, torch.where(repeated, last, picked))
        return torch.where(chosen < 0, -1, chosen + self.global_blocks)


class BigBird(Pattern):
    """Blocks of queries attend to neighboring blocks, to the first ones and to random ones.

    Block i attends to the blocks j with |i - j| ≤ `window_blocks`; the first `global_blocks` attend to all blocks and
    all attend to them. Each block samples `random_blocks` of those that come before its window, and both attend to each
    other. In a causal decoder only what lies before a query is left of all that.

    What a block samples is a function of the seed, the layer and its number. It does not depend on the length of the
    sequence, nor on any generator, so it is the same in training, evaluation and decoding. For the same reason there
    are no global tokens at the end, which the authors' code has.
    """

    whole_blocks = True

    def __init__(
        self,
        *,
        window_blocks: int = 1,
        global_blocks: int = 1,
        random_blocks: int = 3,
        block: int = 64,
        seed: int = 0,
        layer: int = 0,
    ) -> None:
        super().__init__(block)
        counts = {"window_blocks": window_blocks, "global_blocks": global_blocks, "random_blocks": random_blocks}
        for name, count in counts.items():
            if count < 0:
                raise InputError(f"{name} is {count}; a number of blocks is at least 0")
        self.window_blocks, self.global_blocks = window_blocks, global_blocks
        self.random = RandomBlocks(window_blocks, global_blocks, random_blocks, seed, layer)

    def allowed(self, query_index: Tensor, key_index: Tensor) -> Tensor:
        """Return who may attend to whom."""
        queries, keys = (index.div(self.block, rounding_mode="floor") for index in (query_index, key_index))
        row, column = of_queries(queries), of_keys(keys)
        allowed = (row - column).abs() <= self.window_blocks
        allowed = allowed | (row < self.global_blocks) | (column < self.global_blocks)
        for sampled in self.random.sampled(queries).unbind(-1):
            allowed = allowed | (of_queries(sampled) == column)
        for sampled in self.random.sampled(keys).unbind(-1):
            allowed = allowed | (of_keys(sampled) == row)
        return allowed

    def key_blocks(self, number: int, count: int) -> Sequence[int]:
        """Return the blocks of the window, the global ones and the random ones."""
        if number < self.global_blocks:
            return range(count)
        near = range(max(0, number - self.window_blocks), min(count, number + self.window_blocks + 1))
        return sorted({*range(self.global_blocks), *near, *_neighbors(self.random, count)[number]})


@lru_cache(maxsize=64)
def _neighbors(random: RandomBlocks, count: int) -> list[list[int]]:
    """Return for each of `count` blocks the random ones that it attends to: those it samples, and that sample it."""
    neighbors: list[list[int]] = [[] for _ in range(count)]
    for number, sampled in enumerate(random.sampled(torch.from_numpy(np.arange(count))).tolist()):
        for other in sampled:
            if other >= 0:
                neighbors[number].append(other)
                neighbors[other].append(number)
    return neighbors
