"""The residual connection of the paper in one pass: dropout, addition and norm."""

from collections.abc import Callable

from torch import Tensor

from regard.acceleration.add_norm import add_and_norm
from regard.acceleration.changed_classes import has_changed_functions, has_plain_method
from regard.acceleration.known import register_replacement, runs_as
from regard.kernels.dispatch import is_traced
from regard.layers import Dropout, LayerNorm, Residual


@register_replacement
class FusedResidual(Residual):
    """LayerNorm(x + Dropout(Sublayer(x))) by one kernel in training; anything else as `Residual`."""

    def forward(self, x_BTD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Run the sublayer on x and add what it returns."""
        norm, dropout = self.norm, self.dropout
        if (
            not self.training
            or not has_plain_method(Residual, "forward")
            or is_traced()
            or has_changed_functions()
            or self.placement != "post"
            or not isinstance(norm, LayerNorm)
            or not runs_as(norm, LayerNorm)
            or norm.weight is None
            or norm.bias is None
            or not runs_as(dropout, Dropout)
        ):
            return super().forward(x_BTD, sublayer)
        rate = dropout.rate if dropout.training else 0.0
        return add_and_norm(x_BTD, sublayer(x_BTD), norm.weight, norm.bias, eps=norm.eps, rate=rate)
