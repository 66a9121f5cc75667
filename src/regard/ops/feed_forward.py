"""The position-wise feed-forward network and its activations."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError
from regard.ops.derivatives import refuse_second_derivatives
from regard.ops.dropout import dropout as apply_dropout
from regard.ops.float_product import float_product, gated_in_place, gated_product
from regard.ops.linear import Gradients, in_bytes, linear, linear_gradients

Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"]

_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu_,  # in place of the projection that it is given, which nothing else needs
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "swiglu": F.silu,
    "geglu": F.gelu,
}


def is_gated(activation: Activation) -> bool:
    """Say whether an activation multiplies two projections of the input in place of bending one."""
    return activation in ("swiglu", "geglu")


def feed_forward(
    x_BTD: Tensor,
    w1_FD: Tensor,
    b1_F: Tensor | None,
    w2_DF: Tensor,
    b2_D: Tensor | None,
    *,
    activation: Activation = "relu",
    gate_FD: Tensor | None = None,
    gate_bias_F: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Transform each position by itself: FFN(x) = max(0, xW₁ + b₁)W₂ + b₂ (first note), or with GELU (third note).

    The gated forms (SwiGLU, GEGLU) are (f(xW_g + b_g) ⊙ (xW₁ + b₁))W₂ + b₂. Weights are stored as torch's linear
    layers store them, transposed to how the notes write them. `dropout` falls on the hidden layer.
    """
    gate_BTF = None if gate_FD is None else F.linear(x_BTD, gate_FD, gate_bias_F)
    hidden_BTF = activate(F.linear(x_BTD, w1_FD, b1_F), activation, gate_BTF)
    return F.linear(apply_dropout(hidden_BTF, dropout), w2_DF, b2_D)


def relu_feed_forward(x: Tensor, w1_FD: Tensor, b1_F: Tensor | None, w2_DF: Tensor, b2_D: Tensor | None) -> Tensor:
    """Give the first note's FFN(x) for training: its hidden layer is changed in place on the way back, too.

    >>> import torch
    >>> x, w1, w2 = torch.randn(3, 4), torch.randn(16, 4), torch.randn(4, 16)
    >>> torch.allclose(relu_feed_forward(x, w1, None, w2, None), feed_forward(x, w1, None, w2, None))
    True
    """
    output: Tensor = _ReluFeedForward.apply(x, w1_FD, b1_F, w2_DF, b2_D)  # type: ignore[no-untyped-call]
    return output


class _ReluFeedForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w1_FD: Tensor, b1_F: Tensor | None, w2_DF: Tensor, b2_D: Tensor | None) -> Tensor:
        ctx.in_bytes = in_bytes(x)
        hidden = linear(x, w1_FD, b1_F).relu_() if ctx.in_bytes else float_product(x, w1_FD, b1_F, relu=True)
        ctx.save_for_backward(x, hidden, w1_FD, w2_DF)
        return linear(hidden, w2_DF, b2_D)

    @staticmethod
    def backward(ctx: Any, change: Tensor) -> Gradients:
        refuse_second_derivatives("a feed-forward network in training", "one in evaluation")
        x, hidden, w1_FD, w2_DF = ctx.saved_tensors
        of_x, of_w1, of_b1, of_w2, of_b2 = ctx.needs_input_grad
        of_hidden, w2_gradient, b2_gradient = linear_gradients(
            change, hidden, w2_DF, (ctx.in_bytes, of_w2, of_b2), bytes_too=ctx.in_bytes
        )
        if of_hidden is None:
            of_hidden = gated_product(change, w2_DF.T, hidden)
        else:
            of_hidden = gated_in_place(of_hidden, hidden)
        gradients = linear_gradients(of_hidden, x, w1_FD, (of_x, of_w1, of_b1), bytes_too=ctx.in_bytes)
        return *gradients, w2_gradient, b2_gradient


def activate(hidden_BTF: Tensor, activation: Activation, gate_BTF: Tensor | None = None) -> Tensor:
    """Bend a hidden layer, f(h), or let a gate through, f(g) ⊙ h. It may work in place of what it is given."""
    if activation not in _FUNCTIONS:
        raise InputError(f"activation {activation!r} is not known; it is one of {', '.join(get_args(Activation))}")
    if is_gated(activation) != (gate_BTF is not None):
        raise InputError(f"activation {activation!r} takes {'a' if is_gated(activation) else 'no'} gate")
    function = _FUNCTIONS[activation]
    return function(hidden_BTF) if gate_BTF is None else function(gate_BTF) * hidden_BTF
