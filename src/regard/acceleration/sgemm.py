"""xWᵀ + b in floats, by a kernel where it is faster than the library that torch multiplies with."""

import ctypes
import math
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels.bindings import MatrixView, Sgemm, library
from regard.kernels.dispatch import can_compute, has_memory, threads

_FEW_ROWS = 64
"""For fewer, packing the weights costs more than is saved."""


def sgemm(x: Tensor, weight_XD: Tensor, bias_X: Tensor | None = None) -> Tensor:
    """Return xWᵀ + b for x (…, D). It has no backward pass.

    >>> x, weight = torch.randn(100, 8), torch.randn(5, 8)
    >>> torch.allclose(sgemm(x, weight), x @ weight.T, atol=1e-5)
    True
    """
    if by_kernel(x, weight_XD, bias_X):
        y = _result(x, weight_XD)
        _multiply(as_rows(x), weight_XD, y, bias_X=bias_X)
        return y
    with torch.no_grad():
        return F.linear(x, weight_XD, bias_X)


def sgemm_into(x_RD: Tensor, weight_XD: Tensor, to_RX: Tensor, *, add: bool = False) -> None:
    """Write xWᵀ to a place, or add it to what is there."""
    if by_kernel(x_RD, weight_XD) and can_compute(to_RX) and to_RX.is_contiguous():
        assert to_RX.shape == (x_RD.size(0), weight_XD.size(0)), "a place for each result"
        _multiply(x_RD, weight_XD, to_RX, add=add)
    elif add:
        to_RX.addmm_(x_RD, weight_XD.T)
    else:
        torch.mm(x_RD, weight_XD.T, out=to_RX)


def sgemm_and_sums(x_RD: Tensor, weight_XD: Tensor) -> tuple[Tensor, Tensor]:
    """Return xWᵀ, and the sum of each row of x: where rows are columns in memory, they are read once for both."""
    if not (by_kernel(x_RD, weight_XD) and x_RD.stride(0) == 1):
        return sgemm(x_RD, weight_XD), x_RD.sum(1)
    y_RX, sums_R = _result(x_RD, weight_XD), x_RD.new_empty(x_RD.size(0))
    _multiply(x_RD, weight_XD, y_RX, sums_R=sums_R)
    return y_RX, sums_R


def by_kernel(x: Tensor, weight_XD: Tensor, bias_X: Tensor | None = None) -> bool:
    """Whether a product of these is for the kernel; what is wrong with shapes is for torch to say."""
    tensors = [x, weight_XD, *([] if bias_X is None else [bias_X])]
    return (
        x.dim() > 0
        and x.numel() >= _FEW_ROWS * x.size(-1)
        and can_compute(*tensors)
        and _is_faster()
        and weight_XD.dim() == 2
        and x.size(-1) == weight_XD.size(1) > 0
        and (bias_X is None or (bias_X.shape == weight_XD.shape[:1] and bias_X.is_contiguous()))
        and weight_XD.size(0) > 0
        and 1 in weight_XD.stride()
        and not torch.is_autocast_enabled("cpu")
        and all(map(has_memory, tensors))
    )


def as_rows(x: Tensor) -> Tensor:
    """Return x (…, D) as rows."""
    return x.reshape(math.prod(x.shape[:-1]), x.size(-1))


@cache
def _is_faster() -> bool:
    return int(library().regard_sgemm_support()) == 2


def _result(x: Tensor, weight_XD: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight_XD.size(0))


def _multiply(
    x_RD: Tensor,
    weight_XD: Tensor,
    to: Tensor,
    *,
    bias_X: Tensor | None = None,
    sums_R: Tensor | None = None,
    add: bool = False,
) -> None:
    x_RD = x_RD if 1 in x_RD.stride() else x_RD.contiguous()
    product = Sgemm(
        *(*x_RD.shape, weight_XD.size(0)),
        *map(MatrixView.of, (x_RD, weight_XD)),
        *(None if some is None else some.data_ptr() for some in (bias_X, to, sums_R)),
        add,
    )
    library().regard_sgemm(ctypes.byref(product), threads())
