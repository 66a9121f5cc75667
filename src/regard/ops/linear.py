"""xWᵀ + b, in floats or, where a block asks for it, with products of bytes."""

import ctypes
import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError
from regard.native import can_compute, has_memory, is_traced, kernels, library, threads
from regard.ops.derivatives import refuse_second_derivatives


@contextmanager
def products_in_bytes(enabled: bool = True) -> Iterator[None]:
    """Round what `linear` multiplies to bytes in this block, and in the gradients of what is computed in it.

    >>> x, weight = torch.randn(4, 16), torch.randn(8, 16)
    >>> with products_in_bytes():
    ...     rounded = linear(x, weight)
    >>> (rounded - linear(x, weight)).norm() < 0.05 * rounded.norm()
    tensor(True)
    """
    token = _IN_BYTES.set(enabled)
    try:
        yield
    finally:
        _IN_BYTES.reset(token)


def linear(x: Tensor, weight_XD: Tensor, bias_X: Tensor | None = None) -> Tensor:
    """Give xWᵀ + b for x (…, D).

    In `products_in_bytes` every row of x has a scale of its own, and so has every output: 63 steps on either side of
    zero, or 127 where the processor has room for them. What goes back to x is computed likewise from the gradient, and
    so is the gradient of the weights, where every output and every input has a scale for each 1,024 rows. Gradients are
    rounded up or down by chance, so that they are right on average: chances are scrambled from a row's own largest
    number. What rounding adds to the gradient of the weights is about a hundredth of what another batch would change.
    Where something traces or transforms the function, nothing is rounded.
    """
    if is_traced() or not _IN_BYTES.get() or x.dtype != torch.float32:
        return F.linear(x, weight_XD, bias_X)
    if x.device != weight_XD.device:
        raise InputError(f"rows are on {x.device}, and weights on {weight_XD.device}")
    if x.dim() == 0 or weight_XD.dim() != 2 or x.size(-1) != weight_XD.size(1):
        raise InputError(f"rows {tuple(x.shape)} do not fit weights {tuple(weight_XD.shape)}")
    if bias_X is not None and bias_X.shape != weight_XD.shape[:1]:
        raise InputError(f"weights {tuple(weight_XD.shape)} need a bias for each output, got {tuple(bias_X.shape)}")
    y: Tensor = _ByteLinear.apply(x, weight_XD, bias_X)  # type: ignore[no-untyped-call]
    return y


_MOST_INPUTS = 1024
"""Inputs that have a scale in common; of more, each part has its own. The kernels have the same number."""

_IN_BYTES: ContextVar[bool] = ContextVar("products in bytes", default=False)


class _ByteProduct(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in "RDX"),
        ("x", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("row_apart", "row_input_apart")),
        ("weight", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("output_apart", "input_apart")),
        *((name, ctypes.c_void_p) for name in ("bias", "y")),
        ("by_chance", ctypes.c_int32),
    )


class _ByteLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_XD: Tensor, bias_X: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight_XD)
        # No view of something else: what changes it in its place would then be undone by copies.
        return _product(x, weight_XD, bias_X, by_chance=False)

    @staticmethod
    def backward(ctx: Any, change: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives("a product in bytes", "one in floats")
        x, weight_XD = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        change_RX = _as_rows(change)
        return (
            _product(change, weight_XD.T, None, by_chance=True) if of_x else None,
            _product(change_RX.T, _as_rows(x).T, None, by_chance=True) if of_weight else None,
            change_RX.sum(0) if of_bias else None,
        )


def _as_rows(x: Tensor) -> Tensor:
    return x.reshape(math.prod(x.shape[:-1]), x.size(-1))


def _product(x: Tensor, weight_XD: Tensor, bias_X: Tensor | None, *, by_chance: bool) -> Tensor:
    *rows, D = x.shape
    X = weight_XD.size(0)
    if x.numel() * X == 0 or not has_memory(x):  # many directions at once have no bits to round
        return F.linear(x, weight_XD, bias_X)
    tensors = [weight_XD, *([] if bias_X is None else [bias_X])]
    if not (can_compute(*tensors) and 1 in weight_XD.stride()):
        return _product_by_formula(x, weight_XD, bias_X, by_chance=by_chance)
    x_RD = _as_rows(x.resolve_neg())
    x_RD = x_RD if 1 in x_RD.stride() else x_RD.contiguous()
    y = torch.empty(*rows, X, dtype=torch.float32, device="cpu")
    bias = None if bias_X is None else bias_X.contiguous()
    product = _ByteProduct(
        *(x_RD.size(0), D, X),
        *(x_RD.data_ptr(), *x_RD.stride()),
        *(weight_XD.data_ptr(), *weight_XD.stride()),
        *(None if bias is None else bias.data_ptr(), y.data_ptr()),
        by_chance,
    )
    library().regard_byte_product(ctypes.byref(product), threads())
    return y


def _product_by_formula(x: Tensor, weight_XD: Tensor, bias_X: Tensor | None, *, by_chance: bool) -> Tensor:
    """Round in the same way by torch, and multiply what is rounded in floats."""
    row_steps, weight_steps = (127, 127) if _has_room_for_all_bits() else (63, 64)

    def rounded(rows_RD: Tensor, steps: int, *, by_chance: bool) -> Tensor:
        largest_R1 = rows_RD.abs().amax(1, keepdim=True)
        scales_R1 = largest_R1 / steps + 1e-12
        numbers_RD = rows_RD * scales_R1.reciprocal()
        if by_chance:
            numbers_RD = (numbers_RD + _chances(largest_R1, rows_RD.size(1))).clamp(-steps, steps)
        return numbers_RD.round() * scales_R1

    def in_parts(rows_RD: Tensor, steps: int, *, by_chance: bool) -> Tensor:
        starts = range(0, rows_RD.size(1), _MOST_INPUTS)
        parts = (rows_RD[:, start : start + _MOST_INPUTS] for start in starts)
        return torch.cat([rounded(part, steps, by_chance=by_chance) for part in parts], dim=1)

    x_RD = in_parts(_as_rows(x), row_steps, by_chance=by_chance)
    return F.linear(x_RD.view(x.shape), in_parts(weight_XD, weight_steps, by_chance=False), bias_X)


def _has_room_for_all_bits() -> bool:
    found = kernels()
    return found is not None and found.regard_level() == 2


def _chances(largest_R1: Tensor, D: int) -> Tensor:
    """Give numbers from -½ to ½ that go round a circle in golden steps, from a start that depends on a row's bits."""
    bits_R1 = largest_R1.float().view(torch.int32).long() & 0x7FFFFF
    for distance, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        bits_R1 = (bits_R1 ^ bits_R1 >> distance) * factor & 0xFFFFFFFF
    numbers_RD = bits_R1 + torch.arange(D, device=largest_R1.device) * 0x9E3779B9
    signed_RD = ((numbers_RD + 0x80000000) & 0xFFFFFFFF) - 0x80000000
    return signed_RD.float() * 2.0**-32
