"""A residual connection around a sublayer, with its norm and its dropout."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from regard.layers.dropout import Dropout
from regard.layers.norms import LayerNorm
from regard.layers.watching import nobody_watches
from regard.ops import add_and_norm, post_norm_residual, pre_norm_residual

NormPlacement = Literal["pre", "post"]


class Residual(nn.Module):
    """x + Dropout(Sublayer(Norm(x))) for "pre", Norm(x + Dropout(Sublayer(x))) for "post".

    The paper drops from the output of each sublayer, before it is added to the input and normalised.
    """

    def __init__(self, norm: nn.Module, *, placement: NormPlacement, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = norm
        self.placement: NormPlacement = placement
        self.dropout = Dropout(dropout)

    def forward(self, x_BTD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Run the sublayer on x and add what it gives."""
        norm = self.norm
        if self.placement == "post" and type(norm) is LayerNorm and self._can_be_one_pass():
            rate = self.dropout.rate if self.dropout.training else 0.0
            return add_and_norm(x_BTD, sublayer(x_BTD), norm.weight, norm.bias, eps=norm.eps, rate=rate)
        connect = pre_norm_residual if self.placement == "pre" else post_norm_residual
        return connect(x_BTD, lambda x: self.dropout(sublayer(x)), norm)

    def _can_be_one_pass(self) -> bool:
        dropout = self.dropout
        return self.training and type(dropout) is Dropout and nobody_watches(self.norm, dropout)
