"""Random numbers of training: random words that are a pure function of keys.

While a training step runs inside `keyed_dropout`, each row has a key: what is dropped from an example does not
depend on its neighbours, on the number of processes, or on what was sampled before.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from regard.errors import InputError

GOLDEN = 0x9E3779B9
"""The golden part of a circle of 2³²: steps of this size spread more evenly than random ones."""


@contextmanager
def keyed_dropout(keys_B: Tensor) -> Iterator[None]:
    """Draw what is dropped in this block from one int64 key for each row (first dimension) of what it is dropped from.

    >>> from regard.ops import dropout
    >>> x, keys = torch.ones(3, 8), torch.tensor([5, 6, 7])
    >>> with keyed_dropout(keys):
    ...     whole = dropout(x, 0.5)
    >>> with keyed_dropout(keys[1:]):
    ...     part = dropout(x[1:], 0.5)
    >>> part.equal(whole[1:])
    True
    """
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
    """Draw for rows without padding, of which each is one position of a row that has a key.

    The same is dropped from them as with the padding.

    >>> from regard.ops import dropout
    >>> x, keys = torch.ones(2, 3, 8), torch.tensor([5, 6])
    >>> with keyed_dropout(keys):
    ...     padded = dropout(x, 0.5)
    >>> rows, positions = torch.tensor([0, 0, 1]), torch.tensor([0, 1, 0])
    >>> with keyed_dropout(keys), keys_by_position(rows, positions):
    ...     real = dropout(torch.ones(3, 8), 0.5)
    >>> real.equal(padded[rows, positions])
    True
    """
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
    """Return the number from which the random words of each row of x are counted; without keys there is one for all.

    A word decides about so many elements.
    """
    keys = _KEYS.get()
    if keys is None:
        # Over all 64 bits: random_() without bounds would leave the sign bit at zero.
        return torch.empty(1, dtype=torch.int64, device=x.device).random_(-(2**63), None)
    return keys.starts(x, per_word)


def row_words(x_RD: Tensor) -> Tensor:
    """Return one random word for each row of x."""
    starts_R = stream_starts(x_RD, per_word=max(1, x_RD.size(-1)))
    if starts_R.size(0) != x_RD.size(0):
        starts_R = starts_R + torch.arange(x_RD.size(0), device=x_RD.device) * _GOLDEN
    return mixed(starts_R + _GOLDEN)


def random_words(starts_R: Tensor, count: int) -> Tensor:
    """Return the first words of each row."""
    numbers = torch.arange(1, count + 1, device=starts_R.device)
    return mixed(starts_R[:, None] + numbers * _GOLDEN)


def mixed(words: Tensor) -> Tensor:
    """Scramble 64-bit words so that neighbours have nothing in common (the finaliser of SplitMix64).

    It works in place.
    """
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


class _RowKeys:
    """One key a row; each use moves them on, and so draws other words."""

    def __init__(self, keys_B: Tensor) -> None:
        self._keys_B = keys_B
        self.places: tuple[Tensor, Tensor] | None = None
        """The row and the position of each row of what is dropped from, where positions are rows of their own."""

    def starts(self, x: Tensor, per_word: int) -> Tensor:
        rows = self._keys_B.size(0) if self.places is None else self.places[0].size(0)
        given = 0 if x.dim() == 0 else x.size(0) if self.places is None else x.shape[:-1].numel()
        if x.dim() == 0 or given != rows:
            raise InputError(f"what is dropped or sampled has keys for {rows} rows; it was given {tuple(x.shape)}")
        self._keys_B = self._keys_B.to(x.device) + _GOLDEN
        # Scrambled once more for each use, so that the streams of different uses do not run into each other.
        starts_B = mixed(self._keys_B.clone())
        if self.places is None:
            return starts_B
        if x.size(-1) % per_word:
            raise InputError(
                f"what is dropped has keys for positions; {x.size(-1)} elements for each are no whole words"
            )
        rows_R, positions_R = self.places
        # A position's words come after those of the positions before it.
        return starts_B[rows_R] + positions_R * (x.size(-1) // per_word) * _GOLDEN


_KEYS: ContextVar[_RowKeys | None] = ContextVar("dropout keys", default=None)
