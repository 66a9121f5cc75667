"""The packed layers in one call of the package's own kernels: nothing of Python or torch between their parts."""

import ctypes
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.acceleration.beam_cache import State
from regard.acceleration.packed_layers import PackedHeads, PackedLayer, PackedNorm, PackedStack
from regard.acceleration.packed_linear import KernelInt8Linear, RowFunction
from regard.acceleration.packed_positions import PositionTables
from regard.errors import InputError
from regard.kernels.bindings import DecoderState, Heads, Layer, LinearPointers, Norm, Stack, kernels
from regard.kernels.dispatch import readable, threads
from regard.layers.patterns import SlidingWindow

_LENGTH = 256  # of the tables of positions at first
# As the kernels number them.
_ACTIVATIONS = {"relu": 0, "gelu": 1, "gelu_tanh": 2, "silu": 3, "swiglu": 3, "geglu": 1, "geglu_tanh": 2}


class _NoKernelError(Exception):
    """There is no kernel for a part of the model."""


class _Pointers:
    """The layers of a stack as kernels are told of them, with tables of positions up to a length."""

    def __init__(self, stack: PackedStack, length: int) -> None:
        tables = [PositionTables.of(layer.heads.layer, length) for layer in stack.layers]
        layers = (Layer * len(stack.layers))(*map(_layer, stack.layers, tables))
        final = None if stack.final_norm is None else _norm(stack.final_norm)
        self.stack = Stack(
            layers, len(layers), stack.layers[0].d_model, None if final is None else ctypes.pointer(final)
        )
        self.length = 2**62 if all(table.rotations is None and table.bias is None for table in tables) else length
        self._kept: tuple[Any, ...] = (stack, tables, layers, final)  # what the pointers point to


class KernelStack:
    """The layers of an encoder or of a decoder, with int8 weights, by kernels."""

    def __init__(self, stack: PackedStack) -> None:
        library = kernels()
        if library is None or not stack.layers:
            raise _NoKernelError
        self._library, self._stack = library, stack
        self._pointers = _Pointers(stack, _LENGTH)

    @classmethod
    def of(cls, stack: PackedStack) -> Self | None:
        """Return these layers by kernels, or nothing where there are none for some of them."""
        try:
            return cls(stack)
        except _NoKernelError:
            return None

    def _pointers_for(self, length: int) -> _Pointers:
        """Return pointers to tables that cover this length; other threads go on with those that they have."""
        pointers = self._pointers
        if length > pointers.length:
            pointers = self._pointers = _Pointers(self._stack, 2 * length)
        return pointers

    def _check(self, x_RD: Tensor, R: int) -> None:
        """Check shape, dtype and device: kernels do not."""
        assert x_RD.shape == (R, self._pointers.stack.D), f"rows of shape {tuple(x_RD.shape)} in place of {R}"
        if x_RD.dtype != torch.float32 or x_RD.device.type != "cpu":
            raise InputError(f"kernels compute float32 on a CPU, and were given {x_RD.dtype} on {x_RD.device}")

    def encode(self, x_RD: Tensor, lengths_B: NDArray[np.int64]) -> Tensor:
        """Return the states of sentences of these lengths, whose rows come one after the other."""
        self._check(x_RD, int(lengths_B.sum()))
        x_RD = x_RD.contiguous()
        starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths_B)])
        pointers = self._pointers_for(int(lengths_B.max(initial=0)))
        self._library.regard_encode(
            ctypes.byref(pointers.stack), x_RD.data_ptr(), starts.ctypes.data, len(lengths_B), threads()
        )
        return x_RD

    def step(self, x_RD: Tensor, state: State, places: slice, rows: int, record: list[Tensor] | None = None) -> Tensor:
        """Take the first rows of each sentence at these places one position further; give their states."""
        assert record is None, "kernels do not record what they attend to"
        first, B = places.start, places.stop - places.start
        self._check(x_RD, B * rows)
        assert rows <= state.rows, f"{rows} rows do not fit among {state.rows}"
        assert places.stop <= state.count, f"there is no sentence at {places.stop - 1}"
        x_RD = x_RD.contiguous()
        now = DecoderState(
            _pointers(state.past, first),
            state.ancestors_BNT[first:].ctypes.data,
            state.positions_B[first:].ctypes.data,
            state.rows,
            state.ancestors_BNT.shape[2],
            _pointers(state.source, first),
            state.source_lengths_B[first:].ctypes.data,
            state.source[0].size(1) if state.source else 0,
        )
        pointers = self._pointers_for(state.ancestors_BNT.shape[2])
        self._library.regard_step(ctypes.byref(pointers.stack), ctypes.byref(now), B, rows, threads(), x_RD.data_ptr())
        return x_RD


def _pointers(tensors: Sequence[Tensor], first: int) -> Any:
    starts = [tensor.data_ptr() + (4 * first * tensor.stride(0) if first else 0) for tensor in tensors]
    return (ctypes.c_void_p * len(tensors))(*starts)


def _layer(layer: PackedLayer, tables: PositionTables) -> Layer:
    forward = layer.feed_forward
    residuals = (layer.self_attention_residual, layer.cross_attention_residual, layer.feed_forward_residual)
    if len({residual.before for residual in residuals if residual is not None}) > 1:
        raise _NoKernelError
    found = Layer(
        heads=_heads(layer.heads, tables),
        self_attention_norm=_norm(layer.self_attention_residual.norm),
        feed_forward_norm=_norm(layer.feed_forward_residual.norm),
        query_key_value=_linear(layer.heads.together),
        output=_linear(layer.heads.output),
        expand=_linear(forward.expand),
        contract=_linear(forward.contract),
        pre_norm=layer.self_attention_residual.before,
        cross_attention=layer.source is not None,
        activation=_ACTIVATIONS[forward.activation],
        gated=forward.gated,
    )
    if layer.source is not None and layer.cross_attention_residual is not None:
        found.source_heads = _heads(layer.source, PositionTables(None, None, 0))
        found.cross_attention_norm = _norm(layer.cross_attention_residual.norm)
        found.source_query, found.source_output = _linear(layer.source.query), _linear(layer.source.output)
    return found


def _heads(heads: PackedHeads, tables: PositionTables) -> Heads:
    layer, window = heads.layer, heads.layer.pattern
    assert window is None or isinstance(window, SlidingWindow)
    return Heads(
        count=layer.num_heads,
        key_value_count=layer.num_kv_heads,
        d_k=layer.d_k,
        d_v=layer.d_v,
        scale=layer.scale,
        windowed=window is not None,
        window=0 if window is None else window.size,
        sinks=0 if window is None else window.sinks,
        rotations=None if tables.rotations is None else tables.rotations.data_ptr(),
        bias=None if tables.bias is None else tables.bias.data_ptr(),
        length=tables.length,
    )


def _norm(norm: PackedNorm) -> Norm:
    if norm.eps == 0.0 or not readable(norm.weight_D):
        raise _NoKernelError
    bias = None if norm.bias_D is None else norm.bias_D.data_ptr()
    return Norm(norm.weight_D.data_ptr(), bias, norm.eps, norm.centred)


def _linear(linear: RowFunction | None) -> LinearPointers:
    if not isinstance(linear, KernelInt8Linear):
        raise _NoKernelError
    return linear.pointers
