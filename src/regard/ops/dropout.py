"""Dropout whose mask is cut from random bytes: a quarter of the time that drawing one number an element takes."""

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


def checked_rate(rate: float) -> float:
    """Give a rate back if it is one."""
    if not 0.0 <= rate < 1.0:
        raise InputError(f"dropout is {rate}; it must be at least 0 and less than 1")
    return rate


def dropout(x: Tensor, rate: float) -> Tensor:
    """Set each element to zero with the given probability and scale the rest, so that the mean stays.

    On the CPU the rate is rounded to `byte_rate(rate)` and the scale is 1/(1 - that), so that it is exact for the
    rate that is applied. Rates that this would change by more than 2 %, and other devices, take torch's own dropout.
    """
    if rate == 0.0:
        return x
    if x.device.type != "cpu" or not abs(byte_rate(rate) - rate) <= 0.02 * min(rate, 1.0 - rate):
        return F.dropout(x, rate, training=True)
    output: Tensor = _ByteDropout.apply(x, rate)  # type: ignore[no-untyped-call]
    return output


class _ByteDropout(torch.autograd.Function):
    """Keep the mask as one byte an element for the way back, in place of a float."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        threshold = round(rate * 256)
        # Eight bytes a draw, over all 64 bits: random_() without bounds would leave the sign bit at zero.
        words = torch.empty(-(-x.numel() // 8), dtype=torch.int64, device=x.device).random_(-(2**63), None)
        kept = words.view(torch.uint8)[: x.numel()].view(x.shape) >= threshold
        ctx.save_for_backward(kept)
        ctx.scale = 256 / (256 - threshold)
        return torch.mul(x, kept).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        # Not in place on the product: a gradient of the gradient may be asked for.
        return gradients[0] * kept * ctx.scale, None
