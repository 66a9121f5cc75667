"""Dropout whose mask is cut from random bytes: far quicker than one random number an element."""

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError
from regard.ops.rng import has_keys, random_words, stream_starts


def byte_rate(rate: float) -> float:
    """Return a dropout rate rounded to the n/256 that bytes can express; this is the rate that is really applied.

    >>> byte_rate(0.1)
    0.1015625
    """
    return round(rate * 256) / 256


def applied_rate(rate: float) -> float:
    """Return the rate that dropout applies: in 256ths, unless that would change it by more than 2 %."""
    return byte_rate(rate) if abs(byte_rate(rate) - rate) <= 0.02 * min(rate, 1.0 - rate) else rate


def checked_rate(rate: float) -> float:
    """Return a rate if it is one, or raise an `InputError`."""
    if not 0.0 <= rate < 1.0:
        raise InputError(f"dropout is {rate}; it must be at least 0 and less than 1")
    return rate


def fits_bytes(rate: float) -> bool:
    """Whether bytes are fine enough for a rate."""
    return applied_rate(rate) == byte_rate(rate)


def dropout(x: Tensor, rate: float) -> Tensor:
    """Set each element to zero with the given probability and scale the rest, so that the mean stays.

    On the CPU the rate is rounded to `byte_rate(rate)` and the scale is 1/(1 - that), so that it is exact for the
    rate that is applied. Rates that this would change by more than 2 % take whole numbers in place of bytes. On other
    devices, without keys (`regard.ops.rng`), it is torch's own dropout.
    """
    if rate == 0.0:
        return x
    if not has_keys() and (x.device.type != "cpu" or not fits_bytes(rate)):
        return F.dropout(x, rate, training=True)
    starts_R = stream_starts(x, per_word=words_per_element(rate))
    if x.element_size() < 4:  # the scale is not rounded to half precision, which would change the mean
        return x * _kept(starts_R, rate, x.shape).to(x.dtype) * dropout_scale(rate)
    return x * dropout_factors(starts_R, rate, x)


def words_per_element(rate: float) -> int:
    """Return how many elements one 64-bit random word decides about."""
    return 8 if fits_bytes(rate) else 2


def dropout_factors(starts_R: Tensor, rate: float, x: Tensor) -> Tensor:
    """Return what the elements of x are multiplied by: the scale, or 0."""
    return _kept(starts_R, rate, x.shape).to(x.dtype).mul_(dropout_scale(rate))


def dropout_scale(rate: float) -> float:
    """Return the factor of what is not dropped, 1 / (1 - rate)."""
    return 1.0 / (1.0 - applied_rate(rate))


def _kept(starts_R: Tensor, rate: float, shape: torch.Size) -> Tensor:
    """Return a byte for each element: 1 if it stays, 0 if it is dropped."""
    rows = starts_R.size(0)
    elements = shape.numel() // rows if rows else 0
    if not fits_bytes(rate):
        words_RX = random_words(starts_R, -(-elements // 2)).view(torch.int32)
        threshold = round(rate * 2**32) - 2**31
        return (words_RX[:, :elements] >= threshold).to(torch.uint8).view(shape)
    words_RX = random_words(starts_R, -(-elements // 8)).view(torch.uint8)
    threshold = round(rate * 256)
    # Clamping bytes takes a tenth of the time that comparing them does.
    return words_RX[:, :elements].clamp(threshold - 1, threshold).sub_(threshold - 1).view(shape)
