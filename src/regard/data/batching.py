"""Batches by token budget. Which examples are in which batch is a pure function of seed, epoch and position.

So training can be resumed at any step without replaying what came before, and any number of processes agree on the
same batches without talking to each other.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import InputError

Indices = NDArray[np.int64]

_POOL = 2**16  # examples sorted by length together: enough for full batches, few enough to stay mixed


def draw_examples(sizes: Sequence[int], weights: Sequence[float], *, seed: int, epoch: int) -> Indices:
    """Choose the examples of an epoch, in random order, numbered through all corpora.

    A corpus of weight 2 gives each of its examples twice, one of weight 0.5 a half of them, another half each time.
    """
    random = _generator(seed, epoch, stream=0)
    chosen: list[Indices] = []
    first = 0
    for size, weight in zip(sizes, weights, strict=True):
        whole = int(weight)
        part = random.permutation(size)[: round((weight - whole) * size)]
        chosen += [np.arange(first, first + size)] * whole + [first + part]
        first += size
    return random.permutation(np.concatenate(chosen)) if chosen else np.empty(0, dtype=np.int64)


def plan_batches(examples: Indices, lengths: NDArray[np.int64], *, budget: int, seed: int, epoch: int) -> list[Indices]:
    """Cut an epoch's examples into batches of at most `budget` tokens, padding counted, in random order.

    Examples of similar length are batched together. One that is longer than the budget makes a batch by itself.
    """
    if budget < 1:
        raise InputError(f"the token budget of a batch is {budget}; it must be at least 1")
    batches: list[Indices] = []
    for start in range(0, len(examples), _POOL):
        pool = examples[start : start + _POOL]
        # Stable: examples of the same length stay in the epoch's random order.
        batches += _cut(pool[np.argsort(lengths[pool], kind="stable")], lengths, budget)
    order = _generator(seed, epoch, stream=1).permutation(len(batches))
    return [batches[position] for position in order]


def _cut(by_length: Indices, lengths: NDArray[np.int64], budget: int) -> list[Indices]:
    longest = lengths[by_length]
    batches = []
    start = 0
    while start < len(by_length):
        # The padded size of [start, end) grows with end, so the last end that fits is found by halving.
        low, high = start + 1, len(by_length)
        while low < high:
            middle = (low + high + 1) // 2
            if (middle - start) * longest[middle - 1] <= budget:
                low = middle
            else:
                high = middle - 1
        batches.append(by_length[start:low])
        start = low
    return batches


def _generator(seed: int, epoch: int, stream: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=(epoch, stream)))


def padded(sequences: Sequence[Sequence[int] | NDArray[Any]], pad_id: int) -> Tensor:
    """Return sequences as one tensor, padded on the right."""
    longest = max((len(sequence) for sequence in sequences), default=0)
    table = torch.full((len(sequences), longest), pad_id, dtype=torch.int64)
    for row, sequence in enumerate(sequences):
        table[row, : len(sequence)] = torch.as_tensor(np.asarray(sequence, dtype=np.int64))
    return table
