"""Linear layers computed by kernels: int8 for training, and float32 where torch's library leaves AVX-512 unused."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.acceleration.changed_classes import has_plain_method
from regard.acceleration.derivatives import refuse_second_derivatives
from regard.acceleration.int8_matmul import BOTH_STOCHASTIC, NEAREST, ROWS_STOCHASTIC, Rounding, int8_matmul
from regard.acceleration.known import register_replacement
from regard.acceleration.sgemm import as_rows, by_kernel, sgemm, sgemm_and_sums
from regard.errors import InputError
from regard.kernels.dispatch import is_traced


@register_replacement
class Int8Linear(nn.Linear):
    """xWᵀ + b in int8 while it trains, with gradients in int8 too; in evaluation mode as `nn.Linear`.

    >>> layer = nn.Linear(16, 8)
    >>> layer.__class__ = Int8Linear
    >>> x = torch.randn(4, 16)
    >>> (layer(x) - F.linear(x, layer.weight, layer.bias)).norm() < 0.05 * layer(x).norm()
    tensor(True)
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Return xWᵀ + b."""
        if self.training and can_use_int8(input) and has_plain_method(nn.Linear, "forward"):
            return int8_linear(input, self.weight, self.bias)
        return super().forward(input)


@register_replacement
class SgemmLinear(nn.Linear):
    """xWᵀ + b in float32 by a kernel, forward and backward, where it is faster than torch's library."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Return xWᵀ + b."""
        if not has_plain_method(nn.Linear, "forward"):
            return super().forward(input)
        return sgemm_linear(input, self.weight, self.bias)


def can_use_int8(x: Tensor) -> bool:
    """Whether inputs are rounded to int8: float32 that nothing traces or transforms."""
    return not is_traced() and x.dtype == torch.float32 and x.device.type == "cpu"


def int8_linear(x: Tensor, weight_XD: Tensor, bias_X: Tensor | None = None) -> Tensor:
    """Return xWᵀ + b for x (…, D) with an int8 matmul.

    Every row of x has a scale of its own for each 1,024 inputs, and so has every output: 63 and 64 steps on either side
    of zero, or 127 with VNNI. The gradient of x is computed likewise from the output's, with stochastic rounding, so
    that it is unbiased. In the gradient of the weights, a sum over rows, outputs and inputs have scales for each 1,024
    rows, and both are rounded stochastically: what that adds to its variance is about a hundredth of what comes from
    the choice of the batch. The random bits are a function of the largest number that a scale is for.
    """
    if x.device != weight_XD.device:
        raise InputError(f"rows are on {x.device}, and weights on {weight_XD.device}")
    if x.dim() == 0 or weight_XD.dim() != 2 or x.size(-1) != weight_XD.size(1):
        raise InputError(f"rows {tuple(x.shape)} do not fit weights {tuple(weight_XD.shape)}")
    if bias_X is not None and bias_X.shape != weight_XD.shape[:1]:
        raise InputError(f"weights {tuple(weight_XD.shape)} need a bias for each output, got {tuple(bias_X.shape)}")
    y: Tensor = _Int8Linear.apply(x, weight_XD, bias_X)  # type: ignore[no-untyped-call]
    return y


Gradients = tuple[Tensor | None, ...]


class _Int8Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_XD: Tensor, bias_X: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight_XD)
        y = int8_matmul(x, weight_XD, bias_X, NEAREST)
        # A view, as torch's own product gives, could not be changed in place.
        return y.clone() if y._is_view() else y

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Gradients:
        refuse_second_derivatives("an int8 linear layer", "a plain one")
        x, weight_XD = ctx.saved_tensors
        return linear_gradients(grad_output, x, weight_XD, ctx.needs_input_grad, int8=True)


def sgemm_linear(x: Tensor, weight_XD: Tensor, bias_X: Tensor | None) -> Tensor:
    """Return xWᵀ + b for x (…, D), by a kernel where there is a faster one than torch's."""
    if not by_kernel(x, weight_XD, bias_X):
        return F.linear(x, weight_XD, bias_X)
    y: Tensor = _SgemmLinear.apply(x, weight_XD, bias_X)  # type: ignore[no-untyped-call]
    return y


class _SgemmLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_XD: Tensor, bias_X: Tensor | None) -> Tensor:
        of_x, of_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if of_weight else None, weight_XD if of_x else None)
        return sgemm(x, weight_XD, bias_X)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Gradients:
        x, weight_XD = ctx.saved_tensors
        return linear_gradients(grad_output, x, weight_XD, ctx.needs_input_grad, int8=False)


def linear_gradients(
    grad_output: Tensor, x: Tensor | None, weight_XD: Tensor | None, wanted: Sequence[bool], *, int8: bool
) -> Gradients:
    """Return the gradients of x, weight and bias for `grad_output`; None where not needed.

    That of x needs the weight, and that of the weight needs x.
    """
    of_x, of_weight, of_bias = wanted
    grad_RX = as_rows(grad_output)
    x_gradient = weight_gradient = bias_gradient = None
    if of_x:
        assert weight_XD is not None
        x_gradient = _grad_matmul(grad_output, weight_XD.T, int8, ROWS_STOCHASTIC)
    if of_weight:
        assert x is not None
        x_RD = as_rows(x)
        if of_bias and not int8 and not torch.is_grad_enabled():
            return x_gradient, *sgemm_and_sums(grad_RX.T, x_RD.T)
        weight_gradient = _grad_matmul(grad_RX.T, x_RD.T, int8, BOTH_STOCHASTIC)
    if of_bias:
        bias_gradient = grad_RX.sum(0)
    return x_gradient, weight_gradient, bias_gradient


def _grad_matmul(x: Tensor, weight_XD: Tensor, int8: bool, rounding: Rounding) -> Tensor:
    if int8:
        return int8_matmul(x, weight_XD, None, rounding)
    # Where gradients will be differentiated in their turn, they are torch's.
    return x @ weight_XD.T if torch.is_grad_enabled() else sgemm(x, weight_XD)
