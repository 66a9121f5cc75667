"""The position-wise feed-forward network as a layer."""

from torch import Tensor, nn

from regard.layers.dropout import Dropout
from regard.ops.feed_forward import Activation, activate, is_gated


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
        self.expand = nn.Linear(d_model, d_ff, bias=bias)
        self.gate = nn.Linear(d_model, d_ff, bias=bias) if is_gated(activation) else None
        self.contract = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Transform each position by itself."""
        gate_BTF = None if self.gate is None else self.gate(x_BTD)
        hidden_BTF = activate(self.expand(x_BTD), self.activation, gate_BTF)
        output_BTD: Tensor = self.contract(self.dropout(hidden_BTF))
        return output_BTD
