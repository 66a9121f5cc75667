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


def bytes_are_fast() -> bool:
    """Say whether this processor multiplies bytes faster than floats."""
    return torch.backends.cpu.get_cpu_capability().startswith("AVX")


def _weight_steps() -> int:
    """Into how many steps, up and down from zero, weights are rounded so that sums of products are exact.

    Without instructions for it (VNNI), a processor adds two products of bytes in 16 bits: 2 · 255 · 64 still fits.
    """
    return 127 if torch.cpu._is_vnni_supported() else 64


class ByteLinear:
    """xWᵀ + b with weights and inputs rounded to bytes, and sums that are exact.

    Each row of the input has a scale of its own, and so has each output: a row's result does not depend on the rows
    beside it.
    """

    def __init__(self, weight_XD: Tensor, bias_X: Tensor | None) -> None:
        X = weight_XD.size(0)
        steps = _weight_steps()
        self._scales_X = weight_XD.abs().amax(1).clamp_min(1e-12) / steps
        bytes_XD = (weight_XD / self._scales_X[:, None]).round().clamp(-steps, steps).to(torch.int8)
        self._packed = torch.ops.onednn.qlinear_prepack(bytes_XD, None)
        self._zeros_X = torch.zeros(X, dtype=torch.int32)
        self._bias_X = torch.zeros(X) if bias_X is None else bias_X.clone()

    def __call__(self, x_RD: Tensor) -> Tensor:
        """Round each row to 255 steps, multiply, and scale back."""
        scales_R1 = x_RD.abs().amax(1, keepdim=True).clamp_min_(1e-12).div_(127)
        signed_RD = (x_RD / scales_R1).round_().to(torch.int8)
        # The kernel wants bytes without a sign, 128 for zero: turning the highest bit does that.
        bytes_RD = signed_RD.view(torch.uint8).bitwise_xor_(128)
        product_RX = torch.ops.onednn.qlinear_pointwise(
            bytes_RD,
            1.0,
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
        return torch.addcmul(self._bias_X, product_RX, scales_R1)
