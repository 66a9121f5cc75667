"""The feed-forward network with a ReLU as one function: its hidden layer is changed in place in the backward pass."""

from typing import Any

import torch
from torch import Tensor, nn

from regard.acceleration.derivatives import refuse_second_derivatives
from regard.acceleration.dropout import KernelDropout
from regard.acceleration.known import reference_type, register_replacement
from regard.acceleration.linear import Gradients, Int8Linear, can_use_int8, int8_linear, linear_gradients, sgemm_linear
from regard.acceleration.sgemm import gated_in_place, gated_sgemm, sgemm
from regard.kernels.dispatch import is_traced
from regard.layers import Dropout, FeedForward


@register_replacement
class FusedFeedForward(FeedForward):
    """max(0, xW₁ + b₁)W₂ + b₂ in training; anything else as `FeedForward`.

    >>> layer = FeedForward(8)
    >>> x = torch.randn(2, 3, 8)
    >>> expected = layer(x)
    >>> layer.__class__ = FusedFeedForward
    >>> torch.allclose(layer(x), expected, atol=1e-6)
    True
    """

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Transform each position by itself."""
        if not self._can_fuse(x_BTD):
            return super().forward(x_BTD)
        first, second = self.expand, self.contract
        int8 = isinstance(first, Int8Linear) and can_use_int8(x_BTD)
        return relu_feed_forward(x_BTD, first.weight, first.bias, second.weight, second.bias, int8=int8)

    def _can_fuse(self, x_BTD: Tensor) -> bool:
        return (
            self.training
            and not is_traced()
            and self.activation == "relu"
            and type(self.expand) is type(self.contract)
            and reference_type(self.expand) is reference_type(self.contract) is nn.Linear
            and type(self.dropout) in (Dropout, KernelDropout)
            and reference_type(self.dropout) is Dropout
            and (self.dropout.rate == 0.0 or not self.dropout.training)
            and not torch.is_autocast_enabled(x_BTD.device.type)
        )


def relu_feed_forward(
    x: Tensor, w1_FD: Tensor, b1_F: Tensor | None, w2_DF: Tensor, b2_D: Tensor | None, *, int8: bool = False
) -> Tensor:
    """Return max(0, xW₁ + b₁)W₂ + b₂, with weights stored as `nn.Linear` stores them."""
    output: Tensor = _ReluFeedForward.apply(x, w1_FD, b1_F, w2_DF, b2_D, int8)  # type: ignore[no-untyped-call]
    return output


class _ReluFeedForward(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w1_FD: Tensor, b1_F: Tensor | None, w2_DF: Tensor, b2_D: Tensor | None, int8: bool
    ) -> Tensor:
        ctx.int8 = int8
        hidden = int8_linear(x, w1_FD, b1_F).relu_() if int8 else sgemm(x, w1_FD, b1_F, relu=True)
        ctx.save_for_backward(x, hidden, w1_FD, w2_DF)
        return int8_linear(hidden, w2_DF, b2_D) if int8 else sgemm_linear(hidden, w2_DF, b2_D)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Gradients:
        refuse_second_derivatives("a fused feed-forward network", "one in evaluation mode")
        x, hidden, w1_FD, w2_DF = ctx.saved_tensors
        of_x, of_w1, of_b1, of_w2, of_b2, _ = ctx.needs_input_grad
        of_hidden, w2_grad, b2_grad = linear_gradients(
            grad_output, hidden, w2_DF, (ctx.int8, of_w2, of_b2), int8=ctx.int8
        )
        if of_hidden is None:
            of_hidden = gated_sgemm(grad_output, w2_DF.T, hidden)
        else:
            of_hidden = gated_in_place(of_hidden, hidden)
        gradients = linear_gradients(of_hidden, x, w1_FD, (of_x, of_w1, of_b1), int8=ctx.int8)
        return *gradients, w2_grad, b2_grad, None
