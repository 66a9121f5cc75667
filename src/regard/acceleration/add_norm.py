"""What follows each sublayer of the paper's layers, in one pass: dropout, the residual connection and its norm."""

import ctypes
from typing import Any

import torch
from torch import Tensor

from regard.acceleration.derivatives import refuse_second_derivatives
from regard.kernels.bindings import LANES, AddNorm, AddNormGradients, DropoutStream, library
from regard.kernels.dispatch import can_compute, has_memory, threads
from regard.ops.dropout import dropout, dropout_factors, dropout_scale, fits_bytes
from regard.ops.normalization import layer_norm
from regard.ops.rng import stream_starts


def add_and_norm(
    x_BTD: Tensor, y_BTD: Tensor, gamma_D: Tensor, beta_D: Tensor, *, eps: float = 1e-5, rate: float = 0.0
) -> Tensor:
    """Return LayerNorm(x + Dropout(y)): x went past a sublayer, y came out of it.

    >>> from regard.ops import layer_norm
    >>> x, y = torch.randn(2, 3, 8), torch.randn(2, 3, 8)
    >>> gamma, beta = torch.ones(8), torch.zeros(8)
    >>> torch.allclose(add_and_norm(x, y, gamma, beta), layer_norm(x + y, gamma, beta), atol=1e-6)
    True

    The same is dropped as by `dropout`. On the CPU a row is read once, no mask is kept for the backward pass, and there
    are no second derivatives.
    """
    if not _can_join(x_BTD, y_BTD, gamma_D, beta_D, eps, rate):
        return layer_norm(x_BTD + dropout(y_BTD, rate), gamma_D, beta_D, eps=eps)
    starts_R = stream_starts(y_BTD) if rate > 0.0 else None
    output: Tensor = _AddNorm.apply(x_BTD, y_BTD, gamma_D, beta_D, starts_R, eps, rate)  # type: ignore[no-untyped-call]
    return output


def _can_join(x_BTD: Tensor, y_BTD: Tensor, gamma_D: Tensor, beta_D: Tensor, eps: float, rate: float) -> bool:
    D = x_BTD.size(-1)
    return (
        x_BTD.dim() > 1
        and x_BTD.shape == y_BTD.shape
        and gamma_D.shape == beta_D.shape == (D,)
        and D % LANES == 0
        and x_BTD.numel() > 0
        and eps > 0.0
        and fits_bytes(rate)
        and can_compute(x_BTD, y_BTD, gamma_D, beta_D)
        and all(tensor.is_contiguous() for tensor in (x_BTD, y_BTD, gamma_D, beta_D))
    )


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x_BTD: Tensor,
        y_BTD: Tensor,
        gamma_D: Tensor,
        beta_D: Tensor,
        starts_R: Tensor | None,
        eps: float,
        rate: float,
    ) -> Tensor:
        sums_BTD, output_BTD = torch.empty_like(x_BTD), torch.empty_like(x_BTD)
        moments_BT2 = torch.empty(*x_BTD.shape[:-1], 2, dtype=torch.float32, device="cpu")
        ctx.rate = rate
        ctx.save_for_backward(sums_BTD, moments_BT2, gamma_D, starts_R)
        described = _described(rate, sums_BTD, moments_BT2, gamma_D, starts_R)
        described.x, described.y, described.beta = (tensor.data_ptr() for tensor in (x_BTD, y_BTD, beta_D))
        described.eps = eps
        library().regard_add_norm(ctypes.byref(described), threads(), output_BTD.data_ptr())
        return output_BTD

    @staticmethod
    def backward(ctx: Any, grad_BTD: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives("add_and_norm", "a model in evaluation mode")
        # Unpacked once, and kept until the kernel is done: each access may return copies.
        saved: list[Any] = [None if tensor is None else tensor.contiguous() for tensor in ctx.saved_tensors]
        sums_BTD, _, gamma_D, _ = saved
        if not has_memory(grad_BTD):
            return *_gradients_by_formula(ctx.rate, grad_BTD, *saved), None, None, None
        grad_BTD = grad_BTD.resolve_neg().contiguous()
        gradients_ = tuple(torch.empty_like(x) for x in (sums_BTD, sums_BTD, gamma_D, gamma_D))
        gradients = AddNormGradients(*(x.data_ptr() for x in (grad_BTD, *gradients_)))
        described = _described(ctx.rate, *saved)
        library().regard_add_norm_backward(ctypes.byref(described), ctypes.byref(gradients), threads())
        return *gradients_, None, None, None


def _described(rate: float, sums_BTD: Tensor, moments_BT2: Tensor, gamma_D: Tensor, starts_R: Tensor | None) -> AddNorm:
    D = sums_BTD.size(-1)
    sentences = 1 if starts_R is None else starts_R.size(0)  # in what is dropped: without keys all are one
    stream = _dropout_stream(starts_R, sums_BTD.numel(), rate)
    described = AddNorm(sentences, sums_BTD.numel() // D // sentences, D, stream)
    described.sums, described.moments, described.gamma = (x.data_ptr() for x in (sums_BTD, moments_BT2, gamma_D))
    return described


def _gradients_by_formula(
    rate: float, grad_BTD: Tensor, sums_BTD: Tensor, moments_BT2: Tensor, gamma_D: Tensor, starts_R: Tensor | None
) -> tuple[Tensor, ...]:
    """Return the gradients computed by torch, for a `grad_BTD` that a kernel cannot read."""
    mean_BT1, inverse_BT1 = moments_BT2.unbind(-1)
    normal_BTD = (sums_BTD - mean_BT1[..., None]) * inverse_BT1[..., None]
    scaled_BTD = grad_BTD * gamma_D
    along_BT1 = (scaled_BTD * normal_BTD).mean(-1, keepdim=True)
    sums_grad_BTD = (scaled_BTD - scaled_BTD.mean(-1, keepdim=True) - normal_BTD * along_BT1) * inverse_BT1[..., None]
    factors = 1.0 if starts_R is None else dropout_factors(starts_R, rate, sums_BTD)
    positions = tuple(range(sums_BTD.dim() - 1))
    return (
        sums_grad_BTD,
        sums_grad_BTD * factors,
        (grad_BTD * normal_BTD).sum(positions),
        grad_BTD.sum(positions),
    )


def _dropout_stream(starts_R: Tensor | None, size: int, rate: float) -> DropoutStream:
    """Describe dropout from this many elements in all; without starts, nothing is dropped."""
    if starts_R is None:
        return DropoutStream(None, size, 0, 1.0)
    return DropoutStream(starts_R.data_ptr(), size // starts_R.size(0), round(rate * 256), dropout_scale(rate))
