"""Multi-head attention: every head projects, attends and is mixed back into the model."""

from typing import Literal, NamedTuple, overload

from torch import Tensor, nn

from regard.errors import InputError
from regard.layers.kv_cache import KeyValue, KeyValueCache, Rows, SourceCache
from regard.ops import Causal, Mask, attention
from regard.ops.dropout import checked_rate
from regard.ops.masks import as_mask


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, …, head_H) W_O, head_h = Attention(QW_Q, KW_K, VW_V).

    (Vaswani et al. 2017, §3.2.2.)

    >>> import torch, regard
    >>> layer = regard.MultiHeadAttention(d_model=16, num_heads=4, d_k=8, d_v=3, num_kv_heads=2)
    >>> layer(torch.randn(2, 5, 16), torch.randn(2, 7, 16)).shape  # 5 queries over 7 keys
    torch.Size([2, 5, 16])

    d_k and d_v are d_model / num_heads unless given; they may differ, and num_heads · d_k need not be d_model. With
    `num_kv_heads` fewer than `num_heads`, neighbouring heads share keys and values (1: multi-query).
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
        cache: KeyValueCache | SourceCache | None = None,
        lengths: Rows | None = None,
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
        cache: KeyValueCache | SourceCache | None = None,
        lengths: Rows | None = None,
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
        cache: KeyValueCache | SourceCache | None = None,
        lengths: Rows | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend from query (B, T, D) to key (B, S, D), which is the query itself unless given: self-attention.

        Values come from the key unless given. `mask` and `bias`, the additive M, are those of `regard.attention`. With
        a `cache` of self-attention, the new keys and values go behind those already there and each query attends to
        what came before it in its row, and itself; `lengths` then says how many of the new positions of each row are
        real, where rows differ. With a cache of cross-attention, keys and values are those of its source.
        """
        if isinstance(cache, SourceCache):
            attended = self._attend_to_source(query, cache, _with_causal(mask, causal), bias, return_weights)
        elif cache is not None:
            with cache.unless_refused():
                key_value, before = cache.append(self.project_key_value(query if key is None else key, value), lengths)
                mask = before if mask is None else as_mask(mask) & before
                attended = self.attend(query, key_value, mask, bias=bias, return_weights=return_weights)
        else:
            if lengths is not None:
                raise InputError("lengths were given without a cache to append to; a mask hides padding")
            key_value = self.project_key_value(query if key is None else key, value)
            mask = _with_causal(mask, causal)
            attended = self.attend(query, key_value, mask, bias=bias, return_weights=return_weights)
        output, weights_BHTS = attended
        return output if weights_BHTS is None else (output, weights_BHTS)

    def _attend_to_source(
        self,
        query: Tensor,
        cache: SourceCache,
        mask: Mask | Tensor | None,
        bias: Tensor | None,
        return_weights: bool,
    ) -> "Attended":
        """Attend to the source of a cache, all beams of a sentence at once."""
        folded, allowed = cache.fold(query), cache.mask
        T, S = query.size(1), cache.key_value.key_BGSK.size(2)
        if mask is not None:
            dense = cache.fold_scores(as_mask(mask).dense(T, S, query.device), "mask", self.num_heads, T)
            allowed = dense if allowed is None else dense & allowed
        if bias is not None:
            bias = cache.fold_scores(bias, "bias", self.num_heads, T)
        attended = self.attend(folded, cache.key_value, allowed, bias=bias, return_weights=return_weights)
        return attended.unfold(cache.beams)

    def start_cache(self) -> KeyValueCache:
        """Return an empty cache for self-attention."""
        return KeyValueCache()

    def start_source_cache(self, source: Tensor, mask: Tensor | None = None, *, beams: int = 1) -> SourceCache:
        """Return a cache for cross-attention: the keys and values of a source (B, S, D), for so many beams each."""
        return SourceCache(self.project_key_value(source), mask, beams)

    def project_key_value(self, key_BSD: Tensor, value_BSD: Tensor | None = None) -> KeyValue:
        """Return K and V of a sequence, split into heads."""
        value_BSD = key_BSD if value_BSD is None else value_BSD
        self._check_width("key", key_BSD)
        self._check_width("value", value_BSD)
        key_BGSK = _split_heads(self.key(key_BSD), self.num_kv_heads)
        value_BGSV = _split_heads(self.value(value_BSD), self.num_kv_heads)
        return KeyValue(key_BGSK, value_BGSV)

    def attend(
        self,
        query_BTD: Tensor,
        key_value: KeyValue,
        mask: Mask | Tensor | None = None,
        *,
        bias: Tensor | None = None,
        return_weights: bool = False,
    ) -> "Attended":
        """Attend to keys and values that are already projected; return the output, and the weights if asked for.

        `forward` calls it in training and, with the keys and values of a cache, in decoding: a subclass that overrides
        it changes both.
        """
        self._check_width("query", query_BTD)
        query_BHTK = _split_heads(self.query(query_BTD), self.num_heads)
        heads_BHTV, weights_BHTS = self.heads(query_BHTK, key_value, mask, bias, return_weights)
        return Attended(self.output(heads_BHTV.transpose(1, 2).flatten(2)), weights_BHTS)

    def heads(
        self,
        query_BHTK: Tensor,
        key_value: KeyValue,
        mask: Mask | Tensor | None,
        bias: Tensor | None,
        return_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the outputs BHTV of all heads, before W_O, and their weights BHTS if asked for.

        A subclass that changes single heads overrides this; so does a kernel.
        """
        rate = self.dropout if self.training else 0.0
        if return_weights:
            return attention(query_BHTK, *key_value, mask, bias=bias, dropout=rate, return_weights=True)
        return attention(query_BHTK, *key_value, mask, bias=bias, dropout=rate), None

    def _check_width(self, name: str, x: Tensor) -> None:
        if x.dim() != 3 or x.size(-1) != self.d_model:
            raise InputError(f"{name} has shape {tuple(x.shape)}; this layer takes (batch, length, {self.d_model})")


class Attended(NamedTuple):
    """The output of attention, and the weights if they were asked for."""

    output_BTD: Tensor
    weights_BHTS: Tensor | None

    def unfold(self, beams: int) -> "Attended":
        """Return a row for each beam, of what was computed with all beams of a sentence in one row."""
        B, X, D = self.output_BTD.shape
        output_RTD = self.output_BTD.reshape(B * beams, X // beams, D)
        if self.weights_BHTS is None:
            return Attended(output_RTD, None)
        _, H, _, S = self.weights_BHTS.shape
        weights_BHNTS = self.weights_BHTS.reshape(B, H, beams, X // beams, S)
        return Attended(output_RTD, weights_BHNTS.transpose(1, 2).flatten(0, 1))


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


def _with_causal(mask: Mask | Tensor | None, causal: bool) -> Mask | Tensor | None:
    if not causal:
        return mask
    return Causal() if mask is None else as_mask(mask) & Causal()
