"""Multi-head attention: every head projects, attends and is mixed back into the model."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.devices import to_device
from regard.errors import InputError
from regard.layers.kinds.kind import AttentionKind, key_mask
from regard.layers.kv_cache import AppendCache, KeyValue, KeyValueCache, PastCache, SourceCache
from regard.layers.patterns.pattern import Pattern
from regard.layers.positions.relative import RelativePositions
from regard.layers.softmax_attention import Placement, SoftmaxAttention, check_applied
from regard.ops import Causal, Mask, attention
from regard.ops.dropout import checked_rate
from regard.ops.masks import as_mask, broadcast_to_scores, fitted_mask


@dataclass(frozen=True)
class AttentionParts:
    """Optional parts of attention. Without any, it is the attention of the paper."""

    positions: RelativePositions | None = None
    """Rotates queries and keys, or adds to the scores or the output by position."""
    pattern: Pattern | None = None
    """Which keys a query may attend to at all."""
    kind: AttentionKind | None = None
    """Computes the heads in place of softmax attention."""
    query_norm: nn.Module | None = None
    key_norm: nn.Module | None = None
    """Normalize each head's queries and keys before they are compared (QK-norm)."""
    scale: float | None = None
    """What scores are multiplied by; 1/√d_k unless given."""
    softcap: float | None = None
    """Scores are kept between -softcap and softcap, by softcap · tanh(score / softcap)."""


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, …, head_H) W_O, head_h = Attention(QW_Q, KW_K, VW_V).

    (Vaswani et al. 2017, §3.2.2.)

    >>> import torch, regard
    >>> layer = regard.MultiHeadAttention(d_model=16, num_heads=4, d_k=8, d_v=3, num_kv_heads=2)
    >>> layer(torch.randn(2, 5, 16), torch.randn(2, 7, 16)).shape  # 5 queries over 7 keys
    torch.Size([2, 5, 16])

    d_k and d_v are d_model / num_heads unless given; they may differ, and num_heads · d_k need not be d_model. With
    `num_kv_heads` fewer than `num_heads`, neighboring heads share keys and values (1: multi-query). `parts` are
    relative positions, a sparse pattern, another kind of attention and so on.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_k: int | None = None,
        d_v: int | None = None,
        num_kv_heads: int | None = None,
        *,
        bias: bool = True,
        dropout: float = 0.0,
        parts: AttentionParts | None = None,
    ) -> None:
        super().__init__()
        self.d_model, self.num_heads = d_model, num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.d_k = head_width(d_model, num_heads, "d_k", d_k)
        self.d_v = head_width(d_model, num_heads, "d_v", d_v)
        self.dropout = checked_rate(dropout)
        if self.num_kv_heads < 1 or num_heads % self.num_kv_heads:
            raise InputError(f"num_heads {num_heads} is not divisible by num_kv_heads {self.num_kv_heads}")
        self.query = nn.Linear(d_model, num_heads * self.d_k, bias=bias)
        self.key = nn.Linear(d_model, self.num_kv_heads * self.d_k, bias=bias)
        self.value = nn.Linear(d_model, self.num_kv_heads * self.d_v, bias=bias)
        self.output = nn.Linear(num_heads * self.d_v, d_model, bias=bias)
        parts = AttentionParts() if parts is None else parts
        self.positions, self.pattern, self.kind = parts.positions, parts.pattern, parts.kind
        self.query_norm, self.key_norm = parts.query_norm, parts.key_norm
        self.scale: float | Any = self.d_k**-0.5 if parts.scale is None else parts.scale  # or a tensor, to learn
        self.softcap = parts.softcap

    @classmethod
    def like(cls, layer: "MultiHeadAttention") -> Self:
        """Return a layer of this class with the sizes and the parts of another, and weights of its own."""
        names = ("positions", "pattern", "kind", "query_norm", "key_norm", "scale", "softcap")
        parts = AttentionParts(**{name: getattr(layer, name) for name in names})
        sizes = {"d_k": layer.d_k, "d_v": layer.d_v, "num_kv_heads": layer.num_kv_heads}
        options: Any = {**sizes, "bias": layer.query.bias is not None, "dropout": layer.dropout, "parts": parts}
        return cls(layer.d_model, layer.num_heads, **options)

    @overload
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Mask | Tensor | None = None,
        *,
        causal: bool = False,
        bias: Tensor | None = None,
        cache: PastCache | SourceCache | None = None,
        positions: Tensor | None = None,
        return_weights: Literal[False] = False,
    ) -> Tensor: ...
    @overload
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Mask | Tensor | None = None,
        *,
        causal: bool = False,
        bias: Tensor | None = None,
        cache: PastCache | SourceCache | None = None,
        positions: Tensor | None = None,
        return_weights: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Mask | Tensor | None = None,
        *,
        causal: bool = False,
        bias: Tensor | None = None,
        cache: PastCache | SourceCache | None = None,
        positions: Tensor | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend from query (B, T, D) to key (B, S, D), which is the query itself unless given: self-attention.

        Values come from the key unless given. `mask` and `bias`, the additive M, are those of `regard.attention`. With
        a `cache` of self-attention, the new keys and values go behind those already there and each query attends to
        what came before it in its row, and itself. With a cache of cross-attention, keys and values are those of its
        source. `positions`, (T) or (B, T), are those of a sequence in self-attention where they are not 0, 1, 2 ….
        """
        if isinstance(cache, SourceCache):
            attended = self._attend_to_source(query, cache, _with_causal(mask, causal), bias, return_weights)
        elif cache is not None:
            if positions is not None:
                raise InputError("positions were given with a cache; what is appended comes behind what is there")
            key = query if key is None else key
            with cache.unless_refused():
                attended = self._attend_to_past(query, key, value, mask, bias, cache, return_weights)
        else:
            key = query if key is None else key
            at = self._placement(query, key.size(1), key, positions)
            key_value = self.project_key_value(key, value, None if at is None else at.key_positions)
            mask = _with_causal(mask, causal)
            attended = self.attend(query, key_value, mask, bias=bias, at=at, return_weights=return_weights)
        output, weights_BHTS = attended
        return output if weights_BHTS is None else (output, weights_BHTS)

    def _attend_to_past(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None,
        mask: Mask | Tensor | None,
        bias: Tensor | None,
        cache: PastCache,
        return_weights: bool,
    ) -> "AttentionOutput":
        """Append keys and values to a cache and attend to all that it holds."""
        index = None if self.is_plain else index_from(cache.offset, key.size(1), key.device)
        key_value = self.project_key_value(key, value, index)
        if self.kind is not None and index is not None:
            here = Placement(index, index, index, index, states=key, cache=cache)
            return self.attend(query, key_value, mask, bias=bias, at=here, return_weights=return_weights)
        assert isinstance(cache, AppendCache), f"{type(cache).__name__} is of another kind of attention"
        past = cache.append(key_value)
        if self.pattern is not None:
            self.pattern.check_length(int(cache.lengths.max(initial=0)))
        at = None
        if index is not None:
            S = past.key_value.key_BGSK.size(2)
            key_index = torch.arange(S, device=key.device) if past.key_index is None else past.key_index
            at = Placement(index, key_index, index, key_index)
        mask = past.mask if mask is None else as_mask(mask) & past.mask
        return self.attend(query, past.key_value, mask, bias=bias, at=at, return_weights=return_weights)

    def _attend_to_source(
        self,
        query: Tensor,
        cache: SourceCache,
        mask: Mask | Tensor | None,
        bias: Tensor | None,
        return_weights: bool,
    ) -> "AttentionOutput":
        """Attend to the source of a cache, all beams of a sentence at once."""
        folded, allowed = cache.fold(query), cache.mask
        T, S = query.size(1), cache.key_value.key_BGSK.size(2)
        if mask is not None:
            dense = cache.fold_scores(as_mask(mask).dense(T, S, query.device), "mask", self.num_heads, T)
            allowed = dense if allowed is None else dense & allowed
        if bias is not None:
            bias = cache.fold_scores(bias, "bias", self.num_heads, T)
        at = self._placement(folded, S)
        attended = self.attend(folded, cache.key_value, allowed, bias=bias, at=at, return_weights=return_weights)
        return attended.unfold(cache.beams)

    def start_cache(self) -> PastCache:
        """Return an empty cache for self-attention."""
        if self.kind is not None:
            return self.kind.start_cache()
        return KeyValueCache() if self.pattern is None else self.pattern.start_cache()

    def start_source_cache(self, source: Tensor, mask: Tensor | None = None, *, beams: int = 1) -> SourceCache:
        """Return a cache for cross-attention: the keys and values of a source (B, S, D), for so many beams each."""
        return SourceCache(self.project_key_value(source), mask, beams)

    def project_key_value(
        self, key_BSD: Tensor, value_BSD: Tensor | None = None, positions: Tensor | None = None
    ) -> KeyValue:
        """Return K and V of a sequence, split into heads; keys are normalized and rotated."""
        value_BSD = key_BSD if value_BSD is None else value_BSD
        self._check_width("key", key_BSD)
        self._check_width("value", value_BSD)
        key_BGSK = _split_heads(self.key(key_BSD), self.num_kv_heads)
        value_BGSV = _split_heads(self.value(value_BSD), self.num_kv_heads)
        if self.key_norm is not None:
            key_BGSK = self.key_norm(key_BGSK).to(key_BGSK.dtype)  # autocast may have norms in float32
        if self.positions is not None and positions is not None:
            key_BGSK = self.positions.rotate(key_BGSK, positions)
        return KeyValue(key_BGSK, value_BGSV)

    def project_query(self, query_BTD: Tensor, positions: Tensor | None = None) -> Tensor:
        """Return Q of a sequence, split into heads, as it is compared, at these positions."""
        self._check_width("query", query_BTD)
        query_BHTK = _split_heads(self.query(query_BTD), self.num_heads)
        if self.query_norm is not None:
            query_BHTK = self.query_norm(query_BHTK).to(query_BHTK.dtype)
        if self.positions is not None and positions is not None:
            query_BHTK = self.positions.rotate(query_BHTK, positions)
        return query_BHTK

    def attend(
        self,
        query_BTD: Tensor,
        key_value: KeyValue,
        mask: Mask | Tensor | None = None,
        *,
        bias: Tensor | None = None,
        at: Placement | None = None,
        return_weights: bool = False,
    ) -> "AttentionOutput":
        """Attend to keys and values that are already projected; return the output, and the weights if asked for.

        `forward` calls it in training and, with the keys and values of a cache, in decoding: a subclass that overrides
        it changes both. `at` is where queries and keys stand, given where there are parts that vary attention.
        """
        query_BHTK = self.project_query(query_BTD, None if at is None else at.query_positions)
        varied = {} if at is None else {"at": at}
        heads_BHTV, weights_BHTS = self.heads(query_BHTK, key_value, mask, bias, return_weights, **varied)
        if at is not None and not at.applied:
            check_applied(self.heads, at, self._parts_of_heads())
        return AttentionOutput(self.output(heads_BHTV.transpose(1, 2).flatten(2)), weights_BHTS)

    def heads(
        self,
        query_BHTK: Tensor,
        key_value: KeyValue,
        mask: Mask | Tensor | None,
        bias: Tensor | None,
        return_weights: bool = False,
        *,
        at: Placement | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the outputs BHTV of all heads, before W_O, and their weights BHTS if asked for.

        A subclass that changes single heads overrides this; so does a kernel. `at` is given where there are parts that
        vary attention: pass it on to `super().heads`, which applies them.
        """
        rate = self.dropout if self.training else 0.0
        if at is not None:
            at.applied = True
        if at is not None and self.kind is not None:
            if bias is not None or return_weights:
                raise InputError(f"{type(self.kind).__name__} has no scores: it takes no bias and has no weights")
            return self._heads_by_kind(self.kind, query_BHTK, key_value, mask, at), None
        if at is not None:
            varied = SoftmaxAttention(self.scale, self.positions, self.pattern, self.softcap, rate)
            BHTS = (*query_BHTK.shape[:3], key_value.key_BGSK.size(2))
            described = None if mask is None else fitted_mask(as_mask(mask), BHTS, 4, query_BHTK.device)
            bias = None if bias is None else broadcast_to_scores(bias, "bias", BHTS, 4, query_BHTK.device)
            if return_weights:
                return varied.with_weights(query_BHTK, key_value, described, bias, at)
            return varied(query_BHTK, key_value, described, bias, at), None
        if return_weights:
            return attention(query_BHTK, *key_value, mask, bias=bias, dropout=rate, return_weights=True)
        return attention(query_BHTK, *key_value, mask, bias=bias, dropout=rate), None

    def _heads_by_kind(
        self,
        kind: AttentionKind,
        query_BHTK: Tensor,
        key_value: KeyValue,
        mask: Mask | Tensor | None,
        at: Placement,
    ) -> Tensor:
        if at.cache is not None and at.states is not None:
            if mask is not None:
                raise InputError(f"{type(kind).__name__} with a cache takes no mask")
            return kind.step(query_BHTK, key_value, at.states, at.cache)
        causal, allowed_BS = key_mask(mask, query_BHTK, key_value)
        heads_BHTV: Tensor = kind(query_BHTK, key_value, allowed_BS, states_BSD=at.states, causal=causal)
        return heads_BHTV

    @property
    def is_plain(self) -> bool:
        """Whether this is the paper's attention, without variations."""
        return not self.variations()

    def variations(self) -> list[str]:
        """Return the names of the parts that make this layer differ from the paper's."""
        names = ("positions", "pattern", "kind", "query_norm", "key_norm", "softcap")
        scale = [] if type(self.scale) is float and self.scale == self.d_k**-0.5 else ["scale"]
        return [name for name in names if getattr(self, name) is not None] + scale

    def _parts_of_heads(self) -> list[str]:
        """Return the names of the parts that `heads` applies; norms and rotations belong to projections."""
        found = [name for name in ("pattern", "kind", "softcap") if getattr(self, name) is not None]
        adds = self.positions is not None and (self.positions.adds_bias or self.positions.adds_values)
        return ["positions", *found] if adds else found

    def _placement(
        self, query: Tensor, S: int, states: Tensor | None = None, positions: Tensor | None = None
    ) -> Placement | None:
        """Return where queries and S keys of whole sequences stand; None where nothing needs it."""
        if self.is_plain:
            return None
        T, device = query.size(1), query.device
        if (self.positions is not None or self.pattern is not None) and T != S:
            raise InputError(f"{T} queries attend to {S} keys; relative positions and patterns are for self-attention")
        if self.pattern is not None:
            self.pattern.check_length(S)
        query_index, key_index = torch.arange(T, device=device), torch.arange(S, device=device)
        stand_at = (query_index, key_index) if positions is None else (positions, positions)
        return Placement(query_index, key_index, *stand_at, states)

    def _check_width(self, name: str, x: Tensor) -> None:
        if x.dim() != 3 or x.size(-1) != self.d_model:
            raise InputError(f"{name} has shape {tuple(x.shape)}; this layer takes (batch, length, {self.d_model})")


class AttentionOutput(NamedTuple):
    """The output of attention, and the weights if they were asked for."""

    output_BTD: Tensor
    weights_BHTS: Tensor | None

    def unfold(self, beams: int) -> "AttentionOutput":
        """Return a row for each beam, of what was computed with all beams of a sentence in one row."""
        B, X, D = self.output_BTD.shape
        output_RTD = self.output_BTD.reshape(B * beams, X // beams, D)
        if self.weights_BHTS is None:
            return AttentionOutput(output_RTD, None)
        _, H, _, S = self.weights_BHTS.shape
        weights_BHNTS = self.weights_BHTS.reshape(B, H, beams, X // beams, S)
        return AttentionOutput(output_RTD, weights_BHNTS.transpose(1, 2).flatten(0, 1))


def head_width(d_model: int, num_heads: int, name: str, given: int | None) -> int:
    """Return the width of one head: as given, or an even share of the model."""
    if num_heads < 1:
        raise InputError(f"num_heads is {num_heads}; at least one head is needed")
    if given is not None:
        if given < 1:
            raise InputError(f"{name} is {given}; a head needs a width of at least 1")
        return given
    if d_model % num_heads:
        raise InputError(
            f"d_model {d_model} is not divisible by num_heads {num_heads}; give {name} to choose it freely"
        )
    return d_model // num_heads


def _split_heads(x_BTX: Tensor, heads: int) -> Tensor:
    B, T, X = x_BTX.shape
    return x_BTX.view(B, T, heads, X // heads).transpose(1, 2)


def index_from(offset: int | NDArray[np.int64], T: int, device: torch.device) -> Tensor:
    """Return where the next T positions stand: (T), or (B, T) where rows are at offsets of their own."""
    if isinstance(offset, int):
        return torch.arange(offset, offset + T, device=device)
    return to_device(torch.from_numpy(offset[:, None] + np.arange(T)), device)


def _with_causal(mask: Mask | Tensor | None, causal: bool) -> Mask | Tensor | None:
    if not causal:
        return mask
    return Causal() if mask is None else as_mask(mask) & Causal()
