import torch
from torch import Tensor

from regard.ops import post_norm_residual, pre_norm_residual


def test_residuals_are_their_equations() -> None:
    x = torch.randn(2, 3)

    def double(y: Tensor) -> Tensor:
        return 2 * y

    def shift(y: Tensor) -> Tensor:
        return y + 1

    torch.testing.assert_close(pre_norm_residual(x, double, shift), x + 2 * (x + 1))
    torch.testing.assert_close(post_norm_residual(x, double, shift), 3 * x + 1)
