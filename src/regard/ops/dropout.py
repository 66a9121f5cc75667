"""Dropout with masks made from random bytes, one per element; faster than one random number per element."""

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError
from regard.ops.rng import has_keys, random_words, stream_starts


def applied_rate(rate: float) -> float:
    """Return the rate that dropout applies: in the 256ths that bytes can express, unless it would change by over 2 %.

    >>> applied_rate(0.1), applied_rate(0.001)
    (0.1015625, 0.001)
    """
    rounded = round(rate * 256) / 256
    return rounded if abs(rounded - rate) <= 0.02 * min(rate, 1.0 - rate) else rate


def checked_rate(rate: float, name: str = "dropout") -> float:
    """Return a rate if it is one, or raise an `InputError`."""
    if not 0.0 <= rate < 1.0:
        raise InputError(f"{name} is {rate}; it must be at least 0 and less than 1")
    return rate


def fits_bytes(rate: float) -> bool:
    """Whether bytes are fine enough for a rate."""
    return (applied_rate(rate) * 256).is_integer()


def dropout(x: Tensor, rate: float) -> Tensor:
    """Set each element to zero with the given probability and scale the rest, so that the mean stays.

    On the CPU, or with keys (`regard.ops.rng`), the rate is `applied_rate(rate)`; elsewhere it is torch's own dropout.
    """
    if rate == 0.0:
        return x
    if not has_keys() and (x.device.type != "cpu" or not fits_bytes(rate)):
        return F.dropout(x, rate, training=True)
    starts_R = stream_starts(x, per_word=8 if fits_bytes(rate) else 2)
    if x.element_size() < 4:  # the scale is not rounded to half precision, which would change the mean
        return x * _kept(starts_R, rate, x.shape).to(x.dtype) * dropout_scale(rate)
    return x * dropout_factors(starts_R, rate, x)


def dropout_factors(starts_R: Tensor, rate: float, x: Tensor) -> Tensor:
    """Return what the elements of x are multiplied by: the scale, or 0."""
    return _kept(starts_R, rate, x.shape).to(x.dtype).mul_(dropout_scale(rate))


def dropout_scale(rate: float) -> float:
    """Return the factor of what is not dropped, 1 / (1 - rate)."""
    return 1.0 / (1.0 - applied_rate(rate))


def _kept(starts_R: Tensor, rate: float, shape: torch.Size) -> Tensor:
    """Return a byte for each element: 1 if it stays, 0 if it is dropped."""
    elements = shape.numel() // max(starts_R.size(0), 1)
    if not fits_bytes(rate):
        words_RX = random_words(starts_R, -(-elements // 2)).view(torch.int32)
        threshold = round(rate * 2**32) - 2**31
        return (words_RX[:, :elements] >= threshold).to(torch.uint8).view(shape)
    words_RX = random_words(starts_R, -(-elements // 8)).view(torch.uint8)
    threshold = round(rate * 256)
    # Clamping bytes takes a tenth of the time that comparing them does.
    return words_RX[:, :elements].clamp(threshold - 1, threshold).sub_(threshold - 1).view(shape)
