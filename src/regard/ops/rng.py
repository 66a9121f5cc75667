"""Counter-based random numbers for training: random bits as a pure function of keys.

While a training step runs inside `keyed_dropout`, each row has a key: what is dropped from an example does not
depend on its neighbours, on the number of processes, or on what was sampled before.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import InputError


@contextmanager
def keyed_dropout(keys_B: Tensor) -> Iterator[None]:
    """Key the dropout in this block: one int64 per row (first axis) of the input."""
    token = _KEYS.set(_RowKeys(keys_B))
    try:
        yield
    finally:
        _KEYS.reset(token)


def has_keys() -> bool:
    """Whether this runs inside `keyed_dropout`."""
    return _KEYS.get() is not None


@contextmanager
def keys_by_position(rows_R: Tensor, positions_R: Tensor) -> Iterator[None]:
    """Key the dropout of unpadded rows, one per position: the same elements are dropped as with padding."""
    keys = _KEYS.get()
    if keys is None:
        yield
        return
    before, keys.places = keys.places, (rows_R, positions_R)
    try:
        yield
    finally:
        keys.places = before


def stream_starts(x: Tensor, per_word: int = 8) -> Tensor:
    """Return the number from which the words of each row are counted, `per_word` elements each; one without keys."""
    keys = _KEYS.get()
    if keys is not None:
        return keys.starts(x, per_word)
    # Over all 64 bits: random_() without bounds would leave the sign bit at zero.
    return torch.empty(1, dtype=torch.int64, device=x.device).random_(-(2**63), None)


def random_words(starts_R: Tensor, count: int) -> Tensor:
    """Return the first words of each row."""
    return mixed(starts_R[:, None] + torch.arange(1, count + 1, device=starts_R.device) * _GOLDEN)


def mixed(words: Tensor) -> Tensor:
    """Scramble 64-bit words in place, so that neighbors have nothing in common (the finalizer of SplitMix64)."""
    shifted = torch.empty_like(words)
    for distance, factor in ((30, _FIRST), (27, _SECOND), (31, 1)):
        # torch's shift carries the sign along; the mask takes it away, or the highest bit would always come out 0.
        torch.bitwise_right_shift(words, distance, out=shifted).bitwise_and_((1 << (64 - distance)) - 1)
        words.bitwise_xor_(shifted)
        if factor != 1:
            words.mul_(factor)
    return words


# SplitMix64's constants (Steele, Lea and Flood 2014), as signed numbers.
_GOLDEN, _FIRST, _SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


@dataclass
class _RowKeys:
    """One key a row; each use moves them on, and so draws other words."""

    keys_B: Tensor
    places: tuple[Tensor, Tensor] | None = None
    """The row and the position of each row of what is dropped from, where positions are rows of their own."""

    def starts(self, x: Tensor, per_word: int) -> Tensor:
        if torch._C._current_graph_task_id() != -1:  # a backward pass is running
            raise InputError("dropout keyed by step cannot be recomputed; set it to 0, or checkpoint no layers with it")
        rows, given = self.keys_B.size(0), x.shape[:1].numel()
        if self.places is not None:
            rows, given = self.places[0].size(0), x.shape[:-1].numel()
        if x.dim() == 0 or given != rows:
            raise InputError(f"what is dropped or sampled has keys for {rows} rows; it was given {tuple(x.shape)}")
        self.keys_B = self.keys_B.to(x.device) + _GOLDEN
        # Scrambled once more for each use, so that the streams of different uses do not run into each other.
        starts_B = mixed(self.keys_B.clone())
        if self.places is None:
            return starts_B
        rows_R, positions_R = self.places
        # A position's words, which are whole, come after those of the positions before it.
        return starts_B[rows_R] + positions_R * (x.size(-1) // per_word) * _GOLDEN


_KEYS: ContextVar[_RowKeys | None] = ContextVar("dropout keys", default=None)
