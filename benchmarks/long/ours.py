"""Exact attention, and the patterns and kinds of regard: each a function of a length that returns an operator."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from benchmarks.long.settings import FEATURES, GLOBAL, HEADS, LANDMARKS, WIDTH, WINDOW, K
from regard.layers import KeyValue, MultiHeadAttention
from regard.layers.attention import AttentionParts
from regard.layers.kinds import AttentionKind, LinearAttention, LinformerAttention, NystromAttention, PerformerAttention
from regard.layers.kinds.linear import Gating
from regard.layers.patterns import BigBird, BlockSparse, Longformer, Pattern, SlidingWindow
from regard.layers.positions import RelativePositions, ShawPositions, T5Bias
from regard.layers.softmax_attention import Placement
from regard.ops import Causal

Operator = Callable[[Tensor, Tensor, Tensor], Tensor]


def exact(length: int) -> Operator:
    """Return torch's fused attention over all keys."""
    return F.scaled_dot_product_attention


def exact_with_bias(length: int) -> Operator:
    """Return torch's attention with a learned bias for each pair of positions."""
    bias = nn.Parameter(torch.zeros(1, HEADS, length, length))
    return lambda query, key, value: F.scaled_dot_product_attention(query, key, value, attn_mask=bias)


def softmax(
    pattern: Pattern | None = None,
    positions: RelativePositions | None = None,
    *,
    causal: bool = False,
    accelerated: bool = True,
) -> Operator:
    """Return what a layer with a pattern or relative positions computes between its projections."""
    layer = MultiHeadAttention(HEADS * K, HEADS, parts=AttentionParts(positions, pattern))
    if accelerated:
        regard.accelerate(layer)

    def operator(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        index = torch.arange(query.size(2))
        at = Placement(index, index, index, index)
        heads: Tensor = layer.heads(query, KeyValue(key, value), Causal() if causal else None, None, at=at)[0]
        return heads

    return operator


def band(length: int, block: int = 128, reach: int = 2) -> BlockSparse:
    """Return a matrix of blocks with a band of as many keys as the window."""
    count = -(-length // block)
    return BlockSparse([[int(abs(i - j) <= reach) for j in range(count)] for i in range(count)], block=block)


def of_kind(kind: AttentionKind, *, causal: bool = False, states: bool = False) -> Operator:
    """Return another kind of attention."""

    def operator(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        hidden = query.transpose(1, 2).flatten(2) if states else None
        output: Tensor = kind(query, KeyValue(key, value), states_BSD=hidden, causal=causal)
        return output

    return operator


def linear(gating: Gating) -> LinearAttention:
    """Return linear attention."""
    return LinearAttention(HEADS * K, HEADS, HEADS, K, gating=gating)


OURS: dict[str, Callable[[int], Operator]] = {
    "exact": exact,
    "window": lambda length: softmax(SlidingWindow(WINDOW)),
    "window, without kernels": lambda length: softmax(SlidingWindow(WINDOW), accelerated=False),
    "window, causal, 4 sinks": lambda length: softmax(SlidingWindow(WINDOW, sinks=4), causal=True),
    "Longformer": lambda length: softmax(Longformer(WINDOW, global_tokens=GLOBAL)),
    "BigBird": lambda length: softmax(BigBird()),
    "BigBird, causal": lambda length: softmax(BigBird(), causal=True),
    "blocks": lambda length: softmax(band(length)),
    "linear": lambda length: of_kind(linear("none")),
    "linear, causal": lambda length: of_kind(linear("none"), causal=True),
    "retention, causal": lambda length: of_kind(linear("retention"), causal=True),
    "GLA, causal": lambda length: of_kind(linear("gla"), causal=True, states=True),
    "Performer": lambda length: of_kind(PerformerAttention(K, features=FEATURES)),
    "Performer, causal": lambda length: of_kind(PerformerAttention(K, features=FEATURES), causal=True),
    "Linformer": lambda length: of_kind(LinformerAttention(K, width=WIDTH, max_length=length)),
    "Nyströmformer": lambda length: of_kind(NystromAttention(HEADS, K, landmarks=LANDMARKS)),
    "exact with a learned bias": exact_with_bias,
    "T5 bias": lambda length: softmax(positions=T5Bias(HEADS, bidirectional=True)),
    "T5 bias, without kernels": lambda length: softmax(positions=T5Bias(HEADS, bidirectional=True), accelerated=False),
    "Shaw": lambda length: softmax(positions=ShawPositions(K, K)),
}
