"""Multi-head attention: every head projects, attends and is mixed back into the model."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.layers.cache import KeyValue, KeyValueCache
from regard.layers.linear import Linear
from regard.ops import Causal, Mask, attention
from regard.ops.dropout import checked_rate
from regard.ops.masks import as_mask


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, …, head_H) W_O, head_h = Attention(QW_Q, KW_K, VW_V) (all four notes).

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
        self.query = Linear(d_model, num_heads * self.d_k, bias=bias)
        self.key = Linear(d_model, self.num_kv_heads * self.d_k, bias=bias)
        self.value = Linear(d_model, self.num_kv_heads * self.d_v, bias=bias)
        self.output = Linear(num_heads * self.d_v, d_model, bias=bias)

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
        cache: KeyValueCache | None = None,
        lengths: Tensor | None = None,
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
        cache: KeyValueCache | None = None,
        lengths: Tensor | None = None,
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
        cache: KeyValueCache | None = None,
        lengths: Tensor | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend from query (B, T, D) to key (B, S, D), which is the query itself unless given: self-attention.

        Values come from the key unless given. `mask` and `bias`, the notes' M, are those of `regard.attention`. With a
        `cache`, the new keys and values go behind those already there and each query sees what came before it in its
        row, and itself; `lengths` then says how many of the new positions of each row are real, where rows differ.
        """
        key = query if key is None else key
        key_value = self.project_key_value(key, key if value is None else value)
        if cache is None:
            if lengths is not None:
                raise InputError("lengths were given without a cache to append to; a mask hides padding")
            attended = self.attend(
                query, key_value, _with_causal(mask, causal), bias=bias, return_weights=return_weights
            )
        else:
            with cache.unless_refused():
                key_value, before = cache.append(key_value, lengths)
                mask = before if mask is None else as_mask(mask) & before
                attended = self.attend(query, key_value, mask, bias=bias, return_weights=return_weights)
        output, weights_BHTS = attended
        return output if weights_BHTS is None else (output, weights_BHTS)

    def project_key_value(self, key_BSD: Tensor, value_BSD: Tensor | None = None) -> KeyValue:
        """Give K and V of a sequence, split into heads: what cross-attention keeps of the source."""
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
        """Attend to keys and values that are already projected."""
        self._check_width("query", query_BTD)
        query_BHTK = _split_heads(self.query(query_BTD), self.num_heads)
        rate = self.dropout if self.training else 0.0
        weights_BHTS = None
        with _single_precision(query_BHTK) as single:
            if single:
                query_BHTK, key_value = query_BHTK.float(), KeyValue(*(x.float() for x in key_value))
            if return_weights:
                heads_BHTV, weights_BHTS = attention(
                    query_BHTK, *key_value, mask, bias=bias, dropout=rate, return_weights=True
                )
            else:
                heads_BHTV = attention(query_BHTK, *key_value, mask, bias=bias, dropout=rate)
        return Attended(self.output(heads_BHTV.transpose(1, 2).flatten(2)), weights_BHTS)

    def _check_width(self, name: str, x: Tensor) -> None:
        if x.dim() != 3 or x.size(-1) != self.d_model:
            raise InputError(f"{name} has shape {tuple(x.shape)}; this layer takes (batch, length, {self.d_model})")


class Attended(NamedTuple):
    """What attention gave, and the weights if they were asked for."""

    output_BTD: Tensor
    weights_BHTS: Tensor | None


def head_width(d_model: int, num_heads: int, name: str, given: int | None) -> int:
    """Give the width of one head: as given, or an even share of the model."""
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


@contextmanager
def _single_precision(query_BHTK: Tensor) -> Iterator[bool]:
    """Leave autocast for attention on the CPU, where the fused kernel's way back is very slow in bfloat16."""
    if query_BHTK.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        with torch.autocast("cpu", enabled=False):
            yield True
    else:
        yield False


def _with_causal(mask: Mask | Tensor | None, causal: bool) -> Mask | Tensor | None:
    if not causal:
        return mask
    return Causal() if mask is None else as_mask(mask) & Causal()
