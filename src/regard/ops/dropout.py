"""Dropout whose mask is cut from random bytes: far quicker than drawing one number an element.

While a training step runs inside `dropout_keyed_by`, the bytes are a pure function of a key for each row: what is
dropped from an example does not depend on its neighbours, on the number of processes, or on what was drawn before.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError


def byte_rate(rate: float) -> float:
    """Round a dropout rate to the n/256 that bytes can express; this is the rate that is really applied.

    >>> byte_rate(0.1)
    0.1015625
    """
    return round(rate * 256) / 256


def applied_rate(rate: float) -> float:
    """Give the rate that dropout applies: in bytes, unless that would change it by more than 2 %."""
    return byte_rate(rate) if abs(byte_rate(rate) - rate) <= 0.02 * min(rate, 1.0 - rate) else rate


def checked_rate(rate: float) -> float:
    """Give a rate back if it is one."""
    if not 0.0 <= rate < 1.0:
        raise InputError(f"dropout is {rate}; it must be at least 0 and less than 1")
    return rate


def dropout(x: Tensor, rate: float) -> Tensor:
    """Set each element to zero with the given probability and scale the rest, so that the mean stays.

    On the CPU the rate is rounded to `byte_rate(rate)` and the scale is 1/(1 - that), so that it is exact for the
    rate that is applied. Rates that this would change by more than 2 % take whole numbers in place of bytes, and other
    devices torch's own dropout.
    """
    if rate == 0.0:
        return x
    keys = _KEYS.get()
    applied = applied_rate(rate)
    in_bytes = applied == byte_rate(rate)
    if keys is None and (x.device.type != "cpu" or not in_bytes):
        return F.dropout(x, rate, training=True)
    width = 1 if in_bytes else 4
    words = _drawn_words(x, width) if keys is None else keys.words(x, width)
    output: Tensor = _Drop.apply(x, _kept(words, rate, x.shape, in_bytes), applied)  # type: ignore[no-untyped-call]
    return output


@contextmanager
def dropout_keyed_by(keys_B: Tensor) -> Iterator[None]:
    """Draw what is dropped in this block from one int64 key for each row (first dimension) of what it is dropped from.

    >>> from regard.ops import dropout
    >>> x, keys = torch.ones(3, 8), torch.tensor([5, 6, 7])
    >>> with dropout_keyed_by(keys):
    ...     whole = dropout(x, 0.5)
    >>> with dropout_keyed_by(keys[1:]):
    ...     part = dropout(x[1:], 0.5)
    >>> part.equal(whole[1:])
    True
    """
    token = _KEYS.set(_RowKeys(keys_B))
    try:
        yield
    finally:
        _KEYS.reset(token)


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
    """One key a row; each use moves them on, and so draws other bytes."""

    def __init__(self, keys_B: Tensor) -> None:
        self._keys_B = keys_B

    def words(self, x: Tensor, width: int) -> Tensor:
        """Give random words, enough for `width` bytes an element, a row of words for a row of x."""
        if x.dim() == 0 or x.size(0) != self._keys_B.size(0):
            raise InputError(f"dropout has keys for {self._keys_B.size(0)} rows and was given {tuple(x.shape)}")
        self._keys_B = self._keys_B.to(x.device) + _GOLDEN
        # Scrambled once more for each use, so that the streams of different uses do not run into each other.
        starts_B = mixed(self._keys_B.clone())
        count = -(-x[0].numel() * width // 8) if x.size(0) else 0
        return mixed(starts_B[:, None] + torch.arange(1, count + 1, device=x.device) * _GOLDEN)


_KEYS: ContextVar[_RowKeys | None] = ContextVar("dropout keys", default=None)


def _drawn_words(x: Tensor, width: int) -> Tensor:
    # Eight bytes a draw, over all 64 bits: random_() without bounds would leave the sign bit at zero.
    return torch.empty(1, -(-x.numel() * width // 8), dtype=torch.int64, device=x.device).random_(-(2**63), None)


def _kept(words_RX: Tensor, rate: float, shape: torch.Size, in_bytes: bool) -> Tensor:
    """Say by a byte for each element whether it stays: 1, or goes: 0."""
    rows = words_RX.size(0)
    elements = shape.numel() // rows if rows else 0
    if not in_bytes:
        threshold = round(rate * 2**32) - 2**31
        return (words_RX.view(torch.int32)[:, :elements] >= threshold).to(torch.uint8).view(shape)
    threshold = round(rate * 256)
    # Clamping bytes takes a tenth of the time that comparing them does.
    return words_RX.view(torch.uint8)[:, :elements].clamp(threshold - 1, threshold).sub_(threshold - 1).view(shape)


class _Drop(torch.autograd.Function):
    """Keep the mask as one byte an element for the way back, in place of a float."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Tensor, rate: float) -> Tensor:
        ctx.save_for_backward(kept)
        ctx.scale = 1.0 / (1.0 - rate)
        # Bytes become floats before they multiply: a product of mixed types takes four times as long.
        return kept.to(x.dtype).mul_(x).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (kept,) = ctx.saved_tensors
        return kept.to(gradients[0].dtype).mul_(ctx.scale) * gradients[0], None, None
