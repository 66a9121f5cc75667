"""Linear layers that are only used, not trained: their weights packed once, as floats or as bytes."""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Precision = Literal["float", "int8"]
"""As the weights are, or rounded to bytes."""
Linear = Callable[[Tensor], Tensor]
"""From (R, D) to (R, X)."""


def packed_linear(parts: list[nn.Linear], precision: Precision) -> Linear:
    """Pack layers that read the same input into one, whose output is theirs side by side."""
    weight_XD = torch.cat([part.weight.detach() for part in parts])
    bias_X = None
    if parts[0].bias is not None:
        bias_X = torch.cat([part.bias.detach() for part in parts])
    return packed_weight(weight_XD, bias_X, precision)


def packed_weight(weight_XD: Tensor, bias_X: Tensor | None, precision: Precision) -> Linear:
    """Pack a weight matrix and its bias."""
    if precision == "int8":
        return ByteLinear(weight_XD.float(), None if bias_X is None else bias_X.float())
    return lambda x_RD: F.linear(x_RD, weight_XD, bias_X)


class ByteLinear:
    """xWᵀ + b with weights and inputs rounded to bytes, and sums that are exact.

    Each row of the input has a scale of its own, and so has each output: a row's result does not depend on the rows
    beside it.
    """

    def __init__(self, weight_XD: Tensor, bias_X: Tensor | None) -> None:
        X = weight_XD.size(0)
        self._scales_X = weight_XD.abs().amax(1).clamp_min(1e-12) / 127
        bytes_XD = (weight_XD / self._scales_X[:, None]).round().clamp(-127, 127).to(torch.int8)
        self._packed = torch.ops.onednn.qlinear_prepack(bytes_XD, None)
        self._zeros_X = torch.zeros(X, dtype=torch.int32)
        self._bias_X = torch.zeros(X) if bias_X is None else bias_X.clone()

    def __call__(self, x_RD: Tensor) -> Tensor:
        """Round each row to 255 steps, multiply, and scale back."""
        largest_R1 = torch.linalg.vector_norm(x_RD, torch.inf, dim=1, keepdim=True).clamp_min_(1e-12)
        even_RD = torch.quantize_per_tensor(x_RD / largest_R1, 1 / 127, 128, torch.quint8)
        product_RX = torch.ops.onednn.qlinear_pointwise(
            even_RD.int_repr(),
            1 / 127,
            128,
            self._packed,
            self._scales_X,
            self._zeros_X,
            None,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        return torch.addcmul(self._bias_X, product_RX, largest_R1)
