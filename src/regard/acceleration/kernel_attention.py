"""The same attention for short sequences, for windows and for biases by distance, by a kernel, forward and backward."""

import ctypes
from typing import Any

import torch
from torch import Tensor

from regard.acceleration.varlen import SameSequence
from regard.kernels.bindings import LANES, Attention, AttentionGradients, HeadsView, library
from regard.kernels.dispatch import can_compute, has_memory, threads
from regard.layers import KeyValue
from regard.ops.attention import repeat_heads

MAX_LENGTH = 64
"""How many queries and keys the kernel takes; of more, torch computes blocks of scores as fast."""
MAX_WINDOW = 1024
"""How far a window of longer sequences reaches: the scores of 64 queries are kept in a cache."""
MAX_BIASED = 4096
"""How many queries and keys the kernel takes with a bias and without a window, for the same reason."""
BIAS_END = 8
"""How many distances more than there are a bias has: the kernel reads eight at once."""


def fits_kernel(query_BHTK: Tensor, key_BGSK: Tensor, value_BGSV: Tensor, causal: bool, allowed: Tensor | None) -> bool:
    """Whether the kernel is there and takes these: floats on a CPU, masked alike for all queries and heads."""
    T, S = query_BHTK.size(2), key_BGSK.size(2)
    return (
        max(T, S) <= MAX_LENGTH
        and (T == S or not causal)
        and (allowed is None or allowed.shape[1:3] == (1, 1))
        and _fit(query_BHTK, key_BGSK, value_BGSV)
    )


def fits_tiles(query_BHTK: Tensor, key_value: KeyValue, window: int, bias_HL: Tensor | None) -> bool:
    """Whether the kernel is there and takes these: as many queries as keys, with a window or a bias by distance."""
    H, T, S = query_BHTK.size(1), query_BHTK.size(2), key_value.key_BGSK.size(2)
    longest = None if window else MAX_BIASED if bias_HL is not None else MAX_LENGTH
    return (
        T == S
        and window <= MAX_WINDOW
        and (longest is None or longest >= T)
        and (bias_HL is None or (bias_HL.shape == (H, 2 * T - 1 + BIAS_END) and can_compute(bias_HL)))
        and _fit(query_BHTK, *key_value)
    )


def fits_varlen(
    query_1HTK: Tensor, key_1GSK: Tensor, value_1GSV: Tensor, causal: bool, sequences: SameSequence
) -> bool:
    """Whether the kernel is there and takes these: floats on a CPU, of short sequences behind one another."""
    return (
        max(sequences.queries.max_seqlen, sequences.keys.max_seqlen) <= MAX_LENGTH
        and (sequences.queries is sequences.keys or not causal)
        and sequences.queries.cu_seqlens.device.type == "cpu"
        and _fit(query_1HTK, key_1GSK, value_1GSV)
    )


def _fit(query_BHTK: Tensor, key_BGSK: Tensor, value_BGSV: Tensor) -> bool:
    (B, H, _, K), (_, G, S, _) = query_BHTK.shape, key_BGSK.shape
    return (
        # A kernel reads where it is told to: nothing is broadcast.
        key_BGSK.shape == (B, G, S, K)
        and value_BGSV.shape[:3] == (B, G, S)
        and H % G == 0
        and all(map(_readable, (query_BHTK, key_BGSK, value_BGSV)))
        and can_compute(query_BHTK, key_BGSK, value_BGSV)
    )


def _readable(x_BHTX: Tensor) -> bool:
    return x_BHTX.stride(3) == 1 and x_BHTX.size(3) % LANES == 0 and x_BHTX.numel() > 0


def kernel_attention(
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    value_BGSV: Tensor,
    causal: bool,
    allowed: Tensor | SameSequence | None,
    scale: float,
    window: int = 0,
    bias_HL: Tensor | None = None,
) -> Tensor:
    """Return the output BHTV of softmax(QKᵀ·scale + M)V, where one of the functions `fits_…` says that it can.

    With a `window`, a query attends to so many keys on each side. `bias_HL` has what is added to the score of each head
    by the distance from query to key, from 1 - T on, with `BIAS_END` numbers behind the last.
    """
    if bias_HL is not None:
        bias_HL = bias_HL.contiguous()
    output: Tensor = _Attention.apply(query_BHTK, key_BGSK, value_BGSV, bias_HL, causal, allowed, scale, window)  # type: ignore[no-untyped-call]
    return output


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query_BHTK: Tensor,
        key_BGSK: Tensor,
        value_BGSV: Tensor,
        bias_HL: Tensor | None,
        causal: bool,
        allowed: Tensor | SameSequence | None,
        scale: float,
        window: int,
    ) -> Tensor:
        B, H, T, _ = query_BHTK.shape
        S = key_BGSK.size(2)
        allowed_BS = allowed.expand(B, 1, 1, S).contiguous() if isinstance(allowed, Tensor) else None
        output_BHTV = _like_projections(B, H, T, value_BGSV.size(3))
        totals_BTH2 = torch.empty(B, T, H, 2, dtype=torch.float32, device="cpu")
        ctx.causal, ctx.scale, ctx.window = causal, scale, window
        ctx.sequences = allowed if isinstance(allowed, SameSequence) else None
        ctx.save_for_backward(query_BHTK, key_BGSK, value_BGSV, bias_HL, output_BHTV, totals_BTH2, allowed_BS)
        described = _described(ctx, query_BHTK, key_BGSK, value_BGSV, bias_HL, output_BHTV, totals_BTH2, allowed_BS)
        library().regard_attention(ctypes.byref(described), threads())
        return output_BHTV

    @staticmethod
    def backward(ctx: Any, grad_BHTV: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # once, and kept until the kernel is done: each look may give copies
        # A graph of the gradients is torch's to make.
        if torch.is_grad_enabled() or not has_memory(grad_BHTV):
            query_BHTK, key_BGSK, value_BGSV, bias_HL, _, _, allowed_BS = saved
            found = _gradients_by_formula(ctx, query_BHTK, key_BGSK, value_BGSV, bias_HL, allowed_BS, grad_BHTV)
            return *found, None, None, None, None
        described = _described(ctx, *saved)
        if grad_BHTV.stride(3) != 1 or grad_BHTV.is_neg():
            grad_BHTV = _like_projections(*grad_BHTV.shape).copy_(grad_BHTV)
        query_BHTK, key_BGSK, value_BGSV, bias_HL, *_ = saved
        gradients = tuple(_like_projections(*x.shape) for x in (query_BHTK, key_BGSK, value_BGSV))
        if query_BHTK.size(2) > MAX_LENGTH and ctx.sequences is None:  # the kernel adds up what tiles of queries give
            for gradient in gradients[1:]:
                gradient.zero_()
        bias_BHL = None if bias_HL is None else bias_HL.new_zeros(grad_BHTV.size(0), *bias_HL.shape)
        places = AttentionGradients(
            *map(HeadsView.of, (grad_BHTV, *gradients)), None if bias_BHL is None else bias_BHL.data_ptr()
        )
        library().regard_attention_backward(ctypes.byref(described), ctypes.byref(places), threads())
        return *gradients, None if bias_BHL is None else bias_BHL.sum(0), None, None, None, None


def _like_projections(B: int, H: int, T: int, X: int) -> Tensor:
    """Return an empty tensor with the heads of a position side by side, as the projections have them."""
    return torch.empty(B, T, H, X, dtype=torch.float32, device="cpu").transpose(1, 2)


def _described(
    ctx: Any,
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    value_BGSV: Tensor,
    bias_HL: Tensor | None,
    output_BHTV: Tensor,
    totals_BTH2: Tensor,
    allowed_BS: Tensor | None,
) -> Attention:
    (B, H, T, K), (_, G, S, V) = query_BHTK.shape, value_BGSV.shape
    begins: tuple[int | None, int | None] = (None, None)
    if ctx.sequences is not None:
        queries, keys = ctx.sequences.queries, ctx.sequences.keys
        B, begins = len(queries), (queries.cu_seqlens.data_ptr(), keys.cu_seqlens.data_ptr())
    return Attention(
        *(B, H, G, T, S, K, V),
        ctx.scale,
        ctx.causal,
        None if allowed_BS is None else allowed_BS.data_ptr(),
        *begins,
        ctx.window,
        None if bias_HL is None else bias_HL.data_ptr(),
        0 if bias_HL is None else bias_HL.size(1),
        *map(HeadsView.of, (query_BHTK, key_BGSK, value_BGSV, output_BHTV)),
        totals_BTH2.data_ptr(),
    )


def _gradients_by_formula(
    ctx: Any,
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    value_BGSV: Tensor,
    bias_HL: Tensor | None,
    allowed_BS: Tensor | None,
    grad_BHTV: Tensor,
) -> tuple[Tensor | None, ...]:
    """Return the gradients by torch: of gradients that no kernel could read, or with gradients of their own."""
    H, G, T, S = query_BHTK.size(1), key_BGSK.size(1), query_BHTK.size(2), key_BGSK.size(2)
    key_BHSK, value_BHSV = repeat_heads(key_BGSK, H), repeat_heads(value_BGSV, H)
    distance_TS = torch.arange(S) - torch.arange(T)[:, None]
    hidden = torch.zeros(T, S, dtype=torch.bool) if allowed_BS is None else ~allowed_BS
    if ctx.sequences is not None:
        hidden = ~ctx.sequences.dense(T, S)
    if ctx.causal:
        hidden = hidden | (distance_TS > 0)
    if ctx.window:
        hidden = hidden | (distance_TS.abs() > ctx.window)
    scores_BHTS = query_BHTK @ key_BHSK.transpose(2, 3) * ctx.scale
    if bias_HL is not None:
        scores_BHTS = scores_BHTS + bias_HL[:, distance_TS + (T - 1)]
    scores_BHTS = scores_BHTS.masked_fill(hidden, -torch.inf)
    weights_BHTS = scores_BHTS.softmax(-1).masked_fill(hidden, 0.0)  # where nothing is seen, softmax is not a number
    grads_BHTS = grad_BHTV @ value_BHSV.transpose(2, 3)
    mean_BHT1 = (grads_BHTS * weights_BHTS).sum(-1, keepdim=True)
    bias_grad_BHTS = weights_BHTS * (grads_BHTS - mean_BHT1)
    scores_grad_BHTS = bias_grad_BHTS * ctx.scale

    def of_groups(x_BHSX: Tensor) -> Tensor:
        B, _, S, X = x_BHSX.shape
        return x_BHSX.reshape(B, G, H // G, S, X).sum(2)

    def by_distance(x_HTS: Tensor) -> Tensor:
        index = (distance_TS + (T - 1)).flatten().expand(H, -1)
        return torch.zeros(H, 2 * T - 1 + BIAS_END, dtype=x_HTS.dtype).scatter_add(1, index, x_HTS.flatten(1))

    return (
        scores_grad_BHTS @ key_BHSK,
        of_groups(scores_grad_BHTS.transpose(2, 3) @ query_BHTK),
        of_groups(weights_BHTS.transpose(2, 3) @ grad_BHTV),
        None if bias_HL is None else by_distance(bias_grad_BHTS.sum(0)),
    )
