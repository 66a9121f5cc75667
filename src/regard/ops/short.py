"""The same attention for short sequences, by a kernel of the package's own, forward and backward."""

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.native import kernels, threads

_LONGEST = 64  # queries and keys; of longer ones torch computes blocks of scores as fast
_LANES = 8  # floats that are computed at once


class _Rows(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("sentence", "head", "row")),
    )

    @classmethod
    def of(cls, x_BHTX: Tensor) -> "_Rows":
        return cls(x_BHTX.data_ptr(), *x_BHTX.stride()[:3])


class _Attention(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in "BHGTSKV"),
        ("scale", ctypes.c_float),
        ("causal", ctypes.c_int32),
        ("allowed", ctypes.c_void_p),
        *((name, _Rows) for name in ("query", "key", "value", "output")),
        ("totals", ctypes.c_void_p),
    )


class _Gradients(ctypes.Structure):
    _fields_ = tuple((name, _Rows) for name in ("output", "query", "key", "value"))


def is_short(query_BHTK: Tensor, key_BGSK: Tensor, value_BGSV: Tensor, causal: bool, allowed: Tensor | None) -> bool:
    """Say whether the kernel is there and takes these: floats on a CPU, masked alike for all queries and heads."""
    T, S = query_BHTK.size(2), key_BGSK.size(2)
    return (
        max(T, S) <= _LONGEST
        and (T == S or not causal)
        and (allowed is None or allowed.shape[1:3] == (1, 1))
        and all(map(_readable, (query_BHTK, key_BGSK, value_BGSV)))
        and kernels() is not None
        # What traces or transforms a function has tensors without memory, which no pointer leads to.
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
    )


def _readable(x_BHTX: Tensor) -> bool:
    return (
        type(x_BHTX) in (Tensor, torch.nn.Parameter)
        and x_BHTX.dtype == torch.float32
        and x_BHTX.device.type == "cpu"
        and x_BHTX.stride(3) == 1
        and x_BHTX.size(3) % _LANES == 0
        and x_BHTX.numel() > 0
    )


def short_attention(
    query_BHTK: Tensor, key_BGSK: Tensor, value_BGSV: Tensor, causal: bool, allowed: Tensor | None, scale: float
) -> Tensor:
    """Give the output BHTV of softmax(QKᵀ·scale + M)V, where `is_short` says that it can."""
    output: Tensor = _Short.apply(query_BHTK, key_BGSK, value_BGSV, causal, allowed, scale)  # type: ignore[no-untyped-call]
    return output


class _Short(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query_BHTK: Tensor,
        key_BGSK: Tensor,
        value_BGSV: Tensor,
        causal: bool,
        allowed: Tensor | None,
        scale: float,
    ) -> Tensor:
        B, H, T, _ = query_BHTK.shape
        S = key_BGSK.size(2)
        seen_BS = None if allowed is None else allowed.expand(B, 1, 1, S).contiguous()
        output_BHTV = _like_projections(B, H, T, value_BGSV.size(3))
        totals_BHT2 = torch.empty(B, H, T, 2)
        ctx.causal, ctx.scale = causal, scale
        ctx.save_for_backward(query_BHTK, key_BGSK, value_BGSV, output_BHTV, totals_BHT2, seen_BS)
        described = _described(ctx, query_BHTK, key_BGSK, value_BGSV, output_BHTV, totals_BHT2, seen_BS)
        _library().regard_attention(ctypes.byref(described), threads())
        return output_BHTV

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, change_BHTV: Tensor) -> tuple[Tensor | None, ...]:
        query_BHTK, key_BGSK, value_BGSV, *_ = ctx.saved_tensors
        described = _described(ctx, *ctx.saved_tensors)
        change_BHTV = change_BHTV if change_BHTV.stride(3) == 1 else change_BHTV.contiguous()
        changes = [_like_projections(*x.shape) for x in (query_BHTK, key_BGSK, value_BGSV)]
        gradients = _Gradients(*map(_Rows.of, (change_BHTV, *changes)))
        _library().regard_attention_backward(ctypes.byref(described), ctypes.byref(gradients), threads())
        return *changes, None, None, None


def _like_projections(B: int, H: int, T: int, X: int) -> Tensor:
    """Make room with the heads of a position side by side, as the projections before and after have them."""
    return torch.empty(B, T, H, X).transpose(1, 2)


def _described(
    ctx: Any,
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    value_BGSV: Tensor,
    output_BHTV: Tensor,
    totals_BHT2: Tensor,
    seen_BS: Tensor | None,
) -> _Attention:
    (B, H, T, K), (_, G, S, V) = query_BHTK.shape, value_BGSV.shape
    return _Attention(
        *(B, H, G, T, S, K, V),
        ctx.scale,
        ctx.causal,
        None if seen_BS is None else seen_BS.data_ptr(),
        *map(_Rows.of, (query_BHTK, key_BGSK, value_BGSV, output_BHTV)),
        totals_BHT2.data_ptr(),
    )


def _library() -> ctypes.CDLL:
    library = kernels()
    assert library is not None, "`is_short` says whether there are kernels"
    return library
