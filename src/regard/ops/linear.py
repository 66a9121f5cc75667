"""xWᵀ + b, in floats or, where a block asks for it, with products of bytes."""

import ctypes
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError
from regard.native import can_compute, has_memory, is_traced, kernels, library, threads
from regard.ops.derivatives import refuse_second_derivatives
from regard.ops.draws import GOLDEN


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

    In `products_in_bytes` every row of x has a scale of its own for each 1,024 inputs, and so has every output: 63 and
    64 steps on either side of zero, or 127 where the processor has room for them. What goes back to x is computed
    likewise from the gradient, which is rounded up or down by chance, so that it is right on average. In the gradient
    of the weights, a sum over rows, outputs and inputs have scales for each 1,024 rows, and both are rounded by chance:
    what that adds to its variance is at most a hundredth of what comes from the choice of the batch. Chances are
    scrambled from the largest number that a scale is for. Where something traces or transforms the function, nothing is
    rounded.
    """
    if not in_bytes(x):
        return F.linear(x, weight_XD, bias_X)
    if x.device != weight_XD.device:
        raise InputError(f"rows are on {x.device}, and weights on {weight_XD.device}")
    if x.dim() == 0 or weight_XD.dim() != 2 or x.size(-1) != weight_XD.size(1):
        raise InputError(f"rows {tuple(x.shape)} do not fit weights {tuple(weight_XD.shape)}")
    if bias_X is not None and bias_X.shape != weight_XD.shape[:1]:
        raise InputError(f"weights {tuple(weight_XD.shape)} need a bias for each output, got {tuple(bias_X.shape)}")
    y: Tensor = _ByteLinear.apply(x, weight_XD, bias_X)  # type: ignore[no-untyped-call]
    return y


def in_bytes(x: Tensor) -> bool:
    """Say whether `linear` rounds what it multiplies x with, and x."""
    return not is_traced() and _IN_BYTES.get() and x.dtype == torch.float32


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
        *((name, ctypes.c_int32) for name in ("rows_by_chance", "weights_by_chance")),
    )


Gradients = tuple[Tensor | None, ...]


class _ByteLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_XD: Tensor, bias_X: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight_XD)
        y = _product(x, weight_XD, bias_X, _NEAREST)
        # A view, as torch's own product gives, could not be changed in place.
        return y.clone() if y._is_view() else y

    @staticmethod
    def backward(ctx: Any, change: Tensor) -> Gradients:
        refuse_second_derivatives("a product in bytes", "one in floats")
        x, weight_XD = ctx.saved_tensors
        return linear_gradients(change, x, weight_XD, ctx.needs_input_grad, bytes_too=True)


def linear_gradients(
    change: Tensor, x: Tensor, weight_XD: Tensor, wanted: Sequence[bool], *, bytes_too: bool
) -> Gradients:
    """Give the gradients of x, weight and bias, those that are wanted, for a change of `linear`'s result."""
    of_x, of_weight, of_bias = wanted
    change_RX, x_RD = _as_rows(change), _as_rows(x)
    if not bytes_too:
        return (
            change @ weight_XD if of_x else None,
            change_RX.T @ x_RD if of_weight else None,
            change_RX.sum(0) if of_bias else None,
        )
    return (
        _product(change, weight_XD.T, None, _ROWS_BY_CHANCE) if of_x else None,
        _product(change_RX.T, x_RD.T, None, _BOTH_BY_CHANCE) if of_weight else None,
        change_RX.sum(0) if of_bias else None,
    )


def _as_rows(x: Tensor) -> Tensor:
    return x.reshape(math.prod(x.shape[:-1]), x.size(-1))


class _Rounding(NamedTuple):
    """Whether rows and weights are rounded by chance, or to the nearest step."""

    rows_by_chance: bool
    weights_by_chance: bool


_NEAREST, _ROWS_BY_CHANCE, _BOTH_BY_CHANCE = _Rounding(False, False), _Rounding(True, False), _Rounding(True, True)


def _product(x: Tensor, weight_XD: Tensor, bias_X: Tensor | None, rounding: _Rounding) -> Tensor:
    *rows, D = x.shape
    X = weight_XD.size(0)
    if x.numel() * X == 0 or not has_memory(x):  # many directions at once have no bits to round
        return F.linear(x, weight_XD, bias_X)
    tensors = [weight_XD, *([] if bias_X is None else [bias_X])]
    if not (can_compute(*tensors) and 1 in weight_XD.stride()):
        return _product_by_formula(x, weight_XD, bias_X, rounding)
    x_RD = _as_rows(x.resolve_neg())
    x_RD = x_RD if 1 in x_RD.stride() else x_RD.contiguous()
    y = torch.empty(*rows, X, dtype=torch.float32, device="cpu")
    bias = None if bias_X is None else bias_X.contiguous()
    product = _ByteProduct(
        *(x_RD.size(0), D, X),
        *(x_RD.data_ptr(), *x_RD.stride()),
        *(weight_XD.data_ptr(), *weight_XD.stride()),
        *(None if bias is None else bias.data_ptr(), y.data_ptr()),
        *rounding,
    )
    library().regard_byte_product(ctypes.byref(product), threads())
    return y


def _product_by_formula(x: Tensor, weight_XD: Tensor, bias_X: Tensor | None, rounding: _Rounding) -> Tensor:
    """Round in the same way by torch, and multiply what is rounded in floats."""
    row_steps, weight_steps = (127, 127) if _has_room_for_all_bits() else (63, 64)
    x_RD = _rounded(_as_rows(x), row_steps, GOLDEN if rounding.rows_by_chance else None)
    weight_XD = _rounded(weight_XD, weight_steps, _PLASTIC if rounding.weights_by_chance else None)
    return F.linear(x_RD.view(x.shape), weight_XD, bias_X)


def _rounded(rows_RD: Tensor, steps: int, chance: int | None) -> Tensor:
    parts = []
    for start in range(0, rows_RD.size(1), _MOST_INPUTS):
        part = rows_RD[:, start : start + _MOST_INPUTS]
        largest_R1 = part.abs().amax(1, keepdim=True)
        scales_R1 = largest_R1.clamp_min(1e-30) / steps
        numbers = part * scales_R1.reciprocal()
        if chance is not None:
            numbers = (numbers + _chances(largest_R1, part.size(1), chance)).clamp(-steps, steps)
        parts.append(numbers.round() * scales_R1)
    return torch.cat(parts, dim=1)


def _has_room_for_all_bits() -> bool:
    found = kernels()
    return found is not None and found.regard_level() == 2


_PLASTIC = 0xC13FA9A9
"""How far it is from one chance of a weight to the next, as `GOLDEN` is for rows: the two do not go together."""


def _chances(largest_R1: Tensor, D: int, step: int) -> Tensor:
    """Give numbers from -½ to ½ that go round a circle in even steps, from a start that depends on a row's bits."""
    bits_R1 = largest_R1.float().view(torch.int32).long() & 0x7FFFFF
    for distance, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        bits_R1 = (bits_R1 ^ bits_R1 >> distance) * factor & 0xFFFFFFFF
    numbers_RD = bits_R1 + torch.arange(D, device=largest_R1.device) * step
    signed_RD = ((numbers_RD + 0x80000000) & 0xFFFFFFFF) - 0x80000000
    return signed_RD.float() * 2.0**-32
