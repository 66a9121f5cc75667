"""Dropout by a kernel, which keeps no mask: what was dropped is computed again in the backward pass."""

import ctypes
from typing import Any

import torch
from torch import Tensor

from regard.acceleration.known import register_replacement
from regard.kernels.bindings import DropoutStream, library
from regard.kernels.dispatch import can_compute, has_memory, threads
from regard.layers import Dropout
from regard.ops.dropout import dropout, dropout_factors, dropout_scale, fits_bytes
from regard.ops.rng import stream_starts


@register_replacement
class KernelDropout(Dropout):
    """The same elements are dropped as by `Dropout`, from the same random bits."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop, while training."""
        return kernel_dropout(x, self.rate) if self.training else x


def kernel_dropout(x: Tensor, rate: float) -> Tensor:
    """Return what `regard.ops.dropout` does, by a kernel where there is one for x and this rate."""
    if rate == 0.0 or not (fits_bytes(rate) and can_compute(x) and x.is_contiguous() and x.numel() > 0):
        return dropout(x, rate)
    output: Tensor = _Drop.apply(x, stream_starts(x), rate)  # type: ignore[no-untyped-call]
    return output


def dropout_stream(starts_R: Tensor | None, size: int, rate: float) -> DropoutStream:
    """Describe dropout from this many elements in all, for a kernel; without starts, nothing is dropped."""
    if starts_R is None:
        return DropoutStream(None, size, 0, 1.0)
    return DropoutStream(starts_R.data_ptr(), size // starts_R.size(0), round(rate * 256), dropout_scale(rate))


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, starts_R: Tensor, rate: float) -> Tensor:
        ctx.save_for_backward(starts_R)
        ctx.rate = rate
        output = torch.empty_like(x)
        stream = dropout_stream(starts_R, x.numel(), rate)
        library().regard_dropout(ctypes.byref(stream), x.data_ptr(), starts_R.size(0), threads(), output.data_ptr())
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (starts_R,) = ctx.saved_tensors
        (grad_output,) = gradients
        if not has_memory(grad_output):
            return dropout_factors(starts_R, ctx.rate, grad_output) * grad_output, None, None
        # The same elements of the gradient are dropped and scaled, so that this has a gradient too.
        again: Tensor = _Drop.apply(grad_output.resolve_neg().contiguous(), starts_R, ctx.rate)  # type: ignore[no-untyped-call]
        return again, None, None
