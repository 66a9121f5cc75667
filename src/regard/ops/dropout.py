"""Dropout whose mask is cut from random bytes: far quicker than drawing one number an element."""

import ctypes
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError
from regard.kernels.bindings import can_compute, has_memory, library, threads
from regard.ops.rng import drawn_starts, keyed, words_from


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


def cut_from_bytes(rate: float) -> bool:
    """Say whether bytes are fine enough for a rate."""
    return applied_rate(rate) == byte_rate(rate)


def dropout(x: Tensor, rate: float) -> Tensor:
    """Set each element to zero with the given probability and scale the rest, so that the mean stays.

    On the CPU the rate is rounded to `byte_rate(rate)` and the scale is 1/(1 - that), so that it is exact for the
    rate that is applied. Rates that this would change by more than 2 % take whole numbers in place of bytes, and other
    devices torch's own dropout.
    """
    if rate == 0.0:
        return x
    if not keyed() and (x.device.type != "cpu" or not cut_from_bytes(rate)):
        return F.dropout(x, rate, training=True)
    starts_R = drawn_starts(x, per_word=8 if cut_from_bytes(rate) else 2)
    by_kernel = cut_from_bytes(rate) and can_compute(x) and x.is_contiguous() and x.numel() > 0
    output: Tensor = (_DropByKernel if by_kernel else _Drop).apply(x, starts_R, rate)  # type: ignore[no-untyped-call]
    return output


class Dropping(ctypes.Structure):
    """What a kernel must know to draw: see `kernels/csrc/dropping.hpp`."""

    _fields_ = (
        ("starts", ctypes.c_void_p),
        ("elements", ctypes.c_int64),
        ("threshold", ctypes.c_int32),
        ("scale", ctypes.c_float),
    )

    @classmethod
    def of(cls, starts_R: Tensor | None, size: int, rate: float) -> "Dropping":
        """Describe what is dropped from so many elements in all."""
        if starts_R is None:
            return cls(None, size, 0, 1.0)
        return cls(starts_R.data_ptr(), size // starts_R.size(0), round(rate * 256), _scale(rate))


def _scale(rate: float) -> float:
    return 1.0 / (1.0 - applied_rate(rate))


def factors_from(starts_R: Tensor, rate: float, x: Tensor) -> Tensor:
    """Give what the elements of x are multiplied by: the scale, or 0."""
    return _kept(starts_R, rate, x.shape).to(x.dtype).mul_(_scale(rate))


def _kept(starts_R: Tensor, rate: float, shape: torch.Size) -> Tensor:
    """Say by a byte for each element whether it stays: 1, or goes: 0."""
    rows = starts_R.size(0)
    elements = shape.numel() // rows if rows else 0
    if not cut_from_bytes(rate):
        words_RX = words_from(starts_R, -(-elements // 2)).view(torch.int32)
        threshold = round(rate * 2**32) - 2**31
        return (words_RX[:, :elements] >= threshold).to(torch.uint8).view(shape)
    words_RX = words_from(starts_R, -(-elements // 8)).view(torch.uint8)
    threshold = round(rate * 256)
    # Clamping bytes takes a tenth of the time that comparing them does.
    return words_RX[:, :elements].clamp(threshold - 1, threshold).sub_(threshold - 1).view(shape)


class _Drop(torch.autograd.Function):
    """Keep the mask as one byte an element for the way back, in place of a float."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, starts_R: Tensor, rate: float) -> Tensor:
        kept = _kept(starts_R, rate, x.shape)
        ctx.save_for_backward(kept)
        ctx.scale = _scale(rate)
        # Bytes become floats before they multiply: a product of mixed types takes four times as long.
        return kept.to(x.dtype).mul_(x).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (kept,) = ctx.saved_tensors
        return kept.to(gradients[0].dtype).mul_(ctx.scale) * gradients[0], None, None


class _DropByKernel(torch.autograd.Function):
    """Keep no mask: what is dropped is drawn again on the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, starts_R: Tensor, rate: float) -> Tensor:
        ctx.save_for_backward(starts_R)
        ctx.rate = rate
        output = torch.empty_like(x)
        dropping = Dropping.of(starts_R, x.numel(), rate)
        library().regard_drop(ctypes.byref(dropping), x.data_ptr(), starts_R.size(0), threads(), output.data_ptr())
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (starts_R,) = ctx.saved_tensors
        (gradient,) = gradients
        if not has_memory(gradient):
            return factors_from(starts_R, ctx.rate, gradient) * gradient, None, None
        # The same elements of what comes back are dropped and scaled, so that this has a gradient too.
        again: Tensor = _DropByKernel.apply(gradient.resolve_neg().contiguous(), starts_R, ctx.rate)  # type: ignore[no-untyped-call]
        return again, None, None
