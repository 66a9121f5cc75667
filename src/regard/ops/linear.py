"""xWᵀ + b, in floats or, where a block asks for it, with products of bytes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError
from regard.kernels.bindings import is_traced
from regard.ops.byte_product import BOTH_BY_CHANCE, NEAREST, ROWS_BY_CHANCE, Rounding, byte_product
from regard.ops.derivatives import refuse_second_derivatives
from regard.ops.float_product import as_rows, by_kernel, float_product, product_and_sums


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
        return _linear_in_floats(x, weight_XD, bias_X)
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


_IN_BYTES: ContextVar[bool] = ContextVar("products in bytes", default=False)

Gradients = tuple[Tensor | None, ...]


class _ByteLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_XD: Tensor, bias_X: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight_XD)
        y = byte_product(x, weight_XD, bias_X, NEAREST)
        # A view, as torch's own product gives, could not be changed in place.
        return y.clone() if y._is_view() else y

    @staticmethod
    def backward(ctx: Any, change: Tensor) -> Gradients:
        refuse_second_derivatives("a product in bytes", "one in floats")
        x, weight_XD = ctx.saved_tensors
        return linear_gradients(change, x, weight_XD, ctx.needs_input_grad, bytes_too=True)


def _linear_in_floats(x: Tensor, weight_XD: Tensor, bias_X: Tensor | None) -> Tensor:
    if not by_kernel(x, weight_XD, bias_X):
        return F.linear(x, weight_XD, bias_X)
    y: Tensor = _FloatLinear.apply(x, weight_XD, bias_X)  # type: ignore[no-untyped-call]
    return y


class _FloatLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_XD: Tensor, bias_X: Tensor | None) -> Tensor:
        of_x, of_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if of_weight else None, weight_XD if of_x else None)
        return float_product(x, weight_XD, bias_X)

    @staticmethod
    def backward(ctx: Any, change: Tensor) -> Gradients:
        x, weight_XD = ctx.saved_tensors
        return linear_gradients(change, x, weight_XD, ctx.needs_input_grad, bytes_too=False)


def linear_gradients(
    change: Tensor, x: Tensor | None, weight_XD: Tensor | None, wanted: Sequence[bool], *, bytes_too: bool
) -> Gradients:
    """Give the gradients of x, weight and bias, those that are wanted, for a change of `linear`'s result.

    That of x needs the weight, and that of the weight needs x.
    """
    of_x, of_weight, of_bias = wanted
    change_RX = as_rows(change)
    x_gradient = weight_gradient = bias_gradient = None
    if of_x:
        assert weight_XD is not None
        x_gradient = _product_going_back(change, weight_XD.T, bytes_too, ROWS_BY_CHANCE)
    if of_weight:
        assert x is not None
        x_RD = as_rows(x)
        if of_bias and not bytes_too and not torch.is_grad_enabled():
            return x_gradient, *product_and_sums(change_RX.T, x_RD.T)
        weight_gradient = _product_going_back(change_RX.T, x_RD.T, bytes_too, BOTH_BY_CHANCE)
    if of_bias:
        bias_gradient = change_RX.sum(0)
    return x_gradient, weight_gradient, bias_gradient


def _product_going_back(x: Tensor, weight_XD: Tensor, in_bytes: bool, rounding: Rounding) -> Tensor:
    if in_bytes:
        return byte_product(x, weight_XD, None, rounding)
    # Where gradients will be differentiated in their turn, they are torch's.
    return x @ weight_XD.T if torch.is_grad_enabled() else float_product(x, weight_XD)
