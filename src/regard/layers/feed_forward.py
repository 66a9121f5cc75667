"""The position-wise feed-forward network as a layer."""

import torch
from torch import Tensor, nn

from regard.kernels.bindings import is_traced
from regard.layers.dropout import Dropout
from regard.layers.linear import Linear
from regard.layers.watching import nobody_watches
from regard.ops.feed_forward import Activation, activate, is_gated, relu_feed_forward


class FeedForward(nn.Module):
    """FFN(x) = f(xW₁ + b₁)W₂ + b₂, with a gate beside W₁ where the activation has one. d_ff is 4·d_model unless given.

    >>> import torch
    >>> FeedForward(8, activation="swiglu")(torch.randn(2, 3, 8)).shape
    torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        *,
        activation: Activation = "relu",
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        d_ff = 4 * d_model if d_ff is None else d_ff
        self.activation: Activation = activation
        self.dropout = Dropout(dropout)
        self.expand = Linear(d_model, d_ff, bias=bias)
        self.gate = Linear(d_model, d_ff, bias=bias) if is_gated(activation) else None
        self.contract = Linear(d_ff, d_model, bias=bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Transform each position by itself."""
        if self._can_be_one_function(x_BTD):
            first, second = self.expand, self.contract
            return relu_feed_forward(x_BTD, first.weight, first.bias, second.weight, second.bias)
        gate_BTF = None if self.gate is None else self.gate(x_BTD)
        hidden_BTF = activate(self.expand(x_BTD), self.activation, gate_BTF)
        output_BTD: Tensor = self.contract(self.dropout(hidden_BTF))
        return output_BTD

    def _can_be_one_function(self, x_BTD: Tensor) -> bool:
        return (
            self.training
            and not is_traced()
            and self.activation == "relu"
            and (self.dropout.rate == 0.0 or not self.dropout.training)
            and type(self.expand) is type(self.contract) is Linear
            and nobody_watches(self.expand, self.contract, self.dropout)
            and not torch.is_autocast_enabled(x_BTD.device.type)
        )
