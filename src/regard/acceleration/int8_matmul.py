"""The int8 matmul xWᵀ + b, by a kernel or by torch."""

import ctypes
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.acceleration.sgemm import as_rows
from regard.kernels.bindings import Int8Matmul, MatrixView, kernel_status, library
from regard.kernels.dispatch import can_compute, has_memory, threads

_MOST_INPUTS = 1024
"""Inputs that have a scale in common; of more, each part has its own. The kernels have the same number."""


class Rounding(NamedTuple):
    """Whether rows and weights are rounded stochastically, or to the nearest step."""

    stochastic_rows: bool
    stochastic_weights: bool


NEAREST, ROWS_STOCHASTIC, BOTH_STOCHASTIC = Rounding(False, False), Rounding(True, False), Rounding(True, True)


def int8_matmul(x: Tensor, weight_XD: Tensor, bias_X: Tensor | None, rounding: Rounding) -> Tensor:
    """Round x (…, D) and the weights, multiply them, and add the bias as it is."""
    *rows, D = x.shape
    X = weight_XD.size(0)
    if x.numel() * X == 0 or not has_memory(x):  # many directions at once have no bits to round
        return F.linear(x, weight_XD, bias_X)
    tensors = [weight_XD, *([] if bias_X is None else [bias_X])]
    if not (can_compute(*tensors) and 1 in weight_XD.stride()):
        return _product_by_formula(x, weight_XD, bias_X, rounding)
    x_RD = as_rows(x.resolve_neg())
    x_RD = x_RD if 1 in x_RD.stride() else x_RD.contiguous()
    y = torch.empty(*rows, X, dtype=torch.float32, device="cpu")
    bias = None if bias_X is None else bias_X.contiguous()
    product = Int8Matmul(
        *(x_RD.size(0), D, X),
        *map(MatrixView.of, (x_RD, weight_XD)),
        *(None if bias is None else bias.data_ptr(), y.data_ptr()),
        *rounding,
    )
    library().regard_int8_matmul(ctypes.byref(product), threads())
    return y


def _product_by_formula(x: Tensor, weight_XD: Tensor, bias_X: Tensor | None, rounding: Rounding) -> Tensor:
    """Round in the same way by torch, and multiply what is rounded in floats."""
    row_steps, weight_steps = (127, 127) if _has_room_for_all_bits() else (63, 64)
    x_RD = _rounded(as_rows(x), row_steps, GOLDEN if rounding.stochastic_rows else None)
    weight_XD = _rounded(weight_XD, weight_steps, _PLASTIC if rounding.stochastic_weights else None)
    return F.linear(x_RD.view(x.shape), weight_XD, bias_X)


def _rounded(rows_RD: Tensor, steps: int, stochastic: int | None) -> Tensor:
    parts = []
    for start in range(0, rows_RD.size(1), _MOST_INPUTS):
        part = rows_RD[:, start : start + _MOST_INPUTS]
        largest_R1 = part.abs().amax(1, keepdim=True)
        scales_R1 = largest_R1.clamp_min(1e-30) / steps
        numbers = part * scales_R1.reciprocal()
        if stochastic is not None:
            numbers = (numbers + _uniform(largest_R1, part.size(1), stochastic)).clamp(-steps, steps)
        parts.append(numbers.round() * scales_R1)
    return torch.cat(parts, dim=1)


def _has_room_for_all_bits() -> bool:
    return kernel_status().level == "vnni"


GOLDEN = 0x9E3779B9
"""The golden part of a circle of 2³²: steps of this size spread more evenly than random ones."""

_PLASTIC = 0xC13FA9A9
"""The step from one random number of a weight to the next, as `GOLDEN` is for rows: the two do not go together."""


def _uniform(largest_R1: Tensor, D: int, step: int) -> Tensor:
    """Return numbers from -½ to ½ that go round a circle in even steps, from a start that depends on a row's bits."""
    bits_R1 = largest_R1.float().view(torch.int32).long() & 0x7FFFFF
    for distance, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        bits_R1 = (bits_R1 ^ bits_R1 >> distance) * factor & 0xFFFFFFFF
    numbers_RD = bits_R1 + torch.arange(D, device=largest_R1.device) * step
    signed_RD = ((numbers_RD + 0x80000000) & 0xFFFFFFFF) - 0x80000000
    return signed_RD.float() * 2.0**-32
