"""Dropout as a layer."""

from torch import Tensor, nn

from regard.ops import dropout
from regard.ops.dropout import checked_rate


class Dropout(nn.Module):
    """Dropout during training, the identity in evaluation mode; see `regard.ops.dropout` for the rounding."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = checked_rate(rate)

    def forward(self, x: Tensor) -> Tensor:
        """Drop, while training."""
        return dropout(x, self.rate) if self.training else x

    def extra_repr(self) -> str:
        """Show the rate when a model is printed."""
        return f"{self.rate}"
