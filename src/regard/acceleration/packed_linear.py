"""Linear layers that are only used, not trained: their weights packed once, as float or as int8."""

import warnings
from collections.abc import Callable, Sequence
from ctypes import byref
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.acceleration.sgemm import sgemm
from regard.errors import InputError
from regard.kernels.bindings import LinearPointers, kernel_status, kernels
from regard.kernels.dispatch import threads

DecodingPrecision = Literal["float", "int8"]
"""As the weights are, or rounded to int8."""
RowFunction = Callable[[Tensor], Tensor]
"""From (R, D) to (R, X)."""

_FEW = 48  # rows, up to which starting a product costs more than what it does for each


def packed_linear(parts: Sequence[nn.Linear], precision: DecodingPrecision) -> RowFunction:
    """Pack layers that read the same input into one, whose output is theirs side by side."""
    weight_XD = torch.cat([part.weight.detach() for part in parts])
    bias_X = None
    if any(part.bias is not None for part in parts):
        biases = (part.weight.new_zeros(part.out_features) if part.bias is None else part.bias for part in parts)
        bias_X = torch.cat([bias.detach() for bias in biases])
    return packed_weight(weight_XD, bias_X, precision)


def packed_weight(weight_XD: Tensor, bias_X: Tensor | None, precision: DecodingPrecision) -> RowFunction:
    """Pack a weight matrix and its bias."""
    if precision == "int8":
        given = weight_XD.float(), None if bias_X is None else bias_X.float()
        return TorchInt8Linear(*given) if kernels() is None else KernelInt8Linear(*given)
    return lambda x_RD: sgemm(x_RD, weight_XD, bias_X)


def int8_is_fast() -> bool:
    """Whether int8 matmuls are faster than float32 on this processor."""
    return kernels() is not None or torch.backends.cpu.get_cpu_capability().startswith("AVX")


def _weight_steps() -> int:
    """Into how many steps, up and down from zero, weights are rounded so that sums of products are exact.

    Without instructions for it (VNNI), a processor adds two int8 products in 16 bits: 2 · 255 · 64 still fits.
    """
    return 127 if torch.cpu._is_vnni_supported() and kernel_status().level != "avx2" else 64


class PackedInt8Weight:
    """Memory for a matrix X × D as kernels want it, with a bias or without."""

    def __init__(self, X: int, D: int, *, bias: bool) -> None:
        library = kernels()
        assert library is not None
        self.packed = torch.empty(library.regard_packed_size(X, D), dtype=torch.int8)
        self.scales_X, self.sums_X = torch.empty(X, dtype=torch.float32), torch.empty(X, dtype=torch.int32)
        self.bias_X = torch.empty(X, dtype=torch.float32) if bias else None
        self.places = tuple(
            None if kept is None else kept.data_ptr() for kept in (self.packed, self.scales_X, self.sums_X, self.bias_X)
        )
        """Of what is kept here, which stays where it is."""
        self.pointers = LinearPointers(*self.places, X, D)


class KernelInt8Linear:
    """xWᵀ + b with weights and inputs rounded to int8, by the package's own kernel: one pass from float to float.

    Each row of the input has a scale of its own, and so has each output: a row's result does not depend on the rows
    beside it.
    """

    def __init__(self, weight_XD: Tensor, bias_X: Tensor | None) -> None:
        library = kernels()
        assert library is not None
        self._multiply, self._choose = library.regard_linear, library.regard_select_outputs
        self._X, self._D = weight_XD.shape
        int8_XD, scales_X = _quantized(weight_XD, 127 if kernel_status().level == "vnni" else 64)
        self._weights = PackedInt8Weight(self._X, self._D, bias=bias_X is not None)
        packed, _, sums, _ = self._weights.places
        library.regard_pack(int8_XD.data_ptr(), self._X, self._D, packed, sums)
        self._weights.scales_X.copy_(scales_X)
        if self._weights.bias_X is not None and bias_X is not None:
            self._weights.bias_X.copy_(bias_X)
        self.pointers = self._weights.pointers

    def chosen(self, outputs: NDArray[np.int32]) -> PackedInt8Weight:
        """Return some of the outputs by themselves."""
        some = PackedInt8Weight(len(outputs), self._D, bias=self._weights.bias_X is not None)
        self._choose(byref(self.pointers), outputs.ctypes.data, len(outputs), *some.places)
        return some

    def __call__(self, x_RD: Tensor) -> Tensor:
        """Multiply."""
        if x_RD.dtype != torch.float32:
            raise InputError(f"int8 decoding is for float32 models, and this is {x_RD.dtype}; use precision='float'")
        if x_RD.dim() != 2 or x_RD.size(1) != self._D:
            raise InputError(f"rows of {self._D} numbers are expected; got a tensor of shape {tuple(x_RD.shape)}")
        R = x_RD.size(0)
        x_RD = x_RD.contiguous()
        y_RX = torch.empty(R, self._X, dtype=torch.float32, device="cpu")
        self._multiply(byref(self.pointers), x_RD.data_ptr(), R, threads(), y_RX.data_ptr())
        return y_RX


class TorchInt8Linear:
    """xWᵀ + b with weights and inputs rounded to int8, and sums that are exact.

    Each row of the input has a scale of its own, and so has each output: a row's result does not depend on the rows
    beside it. torch has two libraries for this; one is quicker to start, the other with many rows.
    """

    def __init__(self, weight_XD: Tensor, bias_X: Tensor | None) -> None:
        X = weight_XD.size(0)
        int8_XD, self._scales_X = _quantized(weight_XD, _weight_steps())
        self._for_few = _packed_by_fbgemm(int8_XD, self._scales_X)
        self._for_many = torch.ops.onednn.qlinear_prepack(int8_XD, None)
        self._zeros_X = torch.zeros(X, dtype=torch.int32)
        self._bias_X = None if bias_X is None else bias_X.clone()

    def __call__(self, x_RD: Tensor) -> Tensor:
        """Round each row to 255 steps, multiply, and scale back."""
        scales_R1 = x_RD.abs().amax(1, keepdim=True).mul_(1 / 127).add_(1e-12)
        scaled_RD = x_RD / scales_R1
        if x_RD.size(0) <= _FEW:
            # It rounds by itself, to uint8 with 128 for zero.
            product_RX: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
                scaled_RD, 1.0, 128, self._for_few
            )
        else:
            # Flipping the highest bit of an int8 adds 128: a uint8 with 128 for zero.
            uint8_RD = scaled_RD.round_().to(torch.int8).view(torch.uint8).bitwise_xor_(128)
            product_RX = torch.ops.onednn.qlinear_pointwise(
                uint8_RD,
                1.0,
                128,
                self._for_many,
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
        if self._bias_X is None:
            return product_RX.mul_(scales_R1)
        return torch.addcmul(self._bias_X, product_RX, scales_R1, out=product_RX)


def _quantized(weight_XD: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Return weights rounded to so many steps on either side of zero, as int8, and each output's size of a step."""
    scales_X = weight_XD.abs().amax(1).clamp_min(1e-12) / steps
    return (weight_XD / scales_X[:, None]).round().clamp(-steps, steps).to(torch.int8).contiguous(), scales_X


def _packed_by_fbgemm(int8_XD: Tensor, scales_X: Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch means to part with these tensors, not with what multiplies them
        weight_XD = torch._make_per_channel_quantized_tensor(
            int8_XD, scales_X.double(), torch.zeros(len(scales_X), dtype=torch.int64), 0
        )
        return torch.ops.quantized.linear_prepack(weight_XD, None)
