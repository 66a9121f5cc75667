"""A residual connection around a sublayer, with its norm and its dropout."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from regard.layers.dropout import Dropout
from regard.ops import post_norm_residual, pre_norm_residual

NormPlacement = Literal["pre", "post"]


class Residual(nn.Module):
    """x + Dropout(Sublayer(Norm(x))) for "pre", Norm(x + Dropout(Sublayer(x))) for "post".

    As in the paper, dropout is applied to the sublayer's output, before the addition and the norm.
    """

    def __init__(self, norm: nn.Module, *, placement: NormPlacement, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = norm
        self.placement: NormPlacement = placement
        self.dropout = Dropout(dropout)

    def forward(self, x_BTD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Run the sublayer on x and add what it returns."""
        connect = pre_norm_residual if self.placement == "pre" else post_norm_residual
        return connect(x_BTD, lambda x: self.dropout(sublayer(x)), self.norm)
