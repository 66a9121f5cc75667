"""Softmax attention with what relative positions, a sparse pattern and soft-capping add to it.

Long sequences are computed a block of queries at a time, over the keys that the pattern leaves, so that time and memory
grow with the pattern and not with T · S.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.errors import InputError
from regard.layers.block_masks import BlockMasks, indexed
from regard.layers.joined_blocks import RecomputeConcat, joined
from regard.layers.kv_cache import KeyValue, PastCache
from regard.layers.patterns.pattern import Pattern
from regard.layers.positions.relative import RelativePositions
from regard.ops import Mask, attention
from regard.ops.attention import attention_scores, centered_bias, masked_softmax, repeat_heads
from regard.ops.dropout import dropout as apply_dropout
from regard.ops.masks import DenseMask

_BLOCK = 256  # queries computed together where there is no pattern
_DENSE = 512 * 512  # as many scores of a head are computed at once


@dataclass
class Placement:
    """Where queries and keys stand: (T) and (S) where all rows agree, else (B, T) and (B, S)."""

    query_index: Tensor
    key_index: Tensor
    """In their sequence, for patterns."""
    query_positions: Tensor
    key_positions: Tensor
    """For relative positions; the same, unless other positions were given."""
    states: Tensor | None = None
    """What keys and values were projected from, for kinds of attention that compute gates from it."""
    cache: PastCache | None = None
    """What a kind of attention other than softmax has kept of the past."""
    applied: bool = False
    """Whether `MultiHeadAttention.heads` was called with it, which applies the parts that need it."""

    def block(self, rows: Tensor, columns: Tensor) -> "Placement":
        """Return some queries and some keys."""
        queries = (self.query_index[..., rows], self.query_positions[..., rows])
        keys = (self.key_index[..., columns], self.key_positions[..., columns])
        return Placement(queries[0], keys[0], queries[1], keys[1])


def check_applied(heads: Callable[..., object], at: Placement, parts: list[str]) -> None:
    """Refuse a `heads` that leaves parts of its layer out: it neither passes `at` on nor takes it."""
    if parts and not at.applied and not _takes_placement(getattr(heads, "__func__", heads)):
        raise InputError(
            f"{getattr(heads, '__qualname__', 'heads')} leaves out this layer's {' and '.join(parts)}; "
            "it passes its options on to super().heads, or takes `at` and applies them"
        )


@cache
def _takes_placement(heads: Callable[..., object]) -> bool:
    return "at" in inspect.signature(heads).parameters


@dataclass(frozen=True)
class SoftmaxAttention:
    """softmax(cap(QKᵀ · scale) + bias + M)V + values, over the keys that a pattern allows."""

    scale: float | Tensor
    positions: RelativePositions | None = None
    pattern: Pattern | None = None
    softcap: float | None = None
    dropout: float = 0.0

    def __call__(
        self, query_BHTK: Tensor, key_value: KeyValue, mask: Mask | None, bias: Tensor | None, at: Placement
    ) -> Tensor:
        """Return the outputs BHTV of all heads."""
        T, S = query_BHTK.size(2), key_value.key_BGSK.size(2)
        block = _BLOCK if self.pattern is None else self.pattern.block
        if self._is_fused and self.pattern is None:
            return self.dense(query_BHTK, key_value, mask, bias, at)
        if T * S <= _DENSE or block >= T or (self.pattern is not None and T != S):
            return self.dense(query_BHTK, key_value, mask, bias, at)
        return self._in_blocks(query_BHTK, key_value, mask, bias, at, block)

    @property
    def _is_fused(self) -> bool:
        """Whether a fused kernel computes it, which keeps no scores."""
        adds = self.positions is not None and (self.positions.adds_bias or self.positions.adds_values)
        return not adds and self.softcap is None and self.dropout == 0.0

    def dense(
        self, query_BHTK: Tensor, key_value: KeyValue, mask: Mask | None, bias: Tensor | None, at: Placement
    ) -> Tensor:
        """Return the outputs BHTV, all keys at once."""
        positions = self.positions
        if self.softcap is not None or (positions is not None and positions.adds_values):
            return self.with_weights(query_BHTK, key_value, mask, bias, at)[0]
        mask, bias = self._complete(query_BHTK, mask, bias, at)
        return attention(query_BHTK, *key_value, mask, bias=bias, scale=self.scale, dropout=self.dropout)

    def with_weights(
        self, query_BHTK: Tensor, key_value: KeyValue, mask: Mask | None, bias: Tensor | None, at: Placement
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs BHTV and the weights BHTS, as they are before dropout, step by step."""
        mask, bias = self._complete(query_BHTK, mask, bias, at)
        scores_BHTS = attention_scores(query_BHTK, key_value.key_BGSK, self.scale)
        if self.softcap is not None:
            scores_BHTS = self.softcap * (scores_BHTS / self.softcap).tanh()
        M: Mask | Tensor | None = mask
        if bias is not None:
            allowed = None if mask is None else mask.dense(scores_BHTS.size(2), scores_BHTS.size(3), query_BHTK.device)
            M = centered_bias(bias, allowed, scores_BHTS.dtype)
        weights_BHTS = masked_softmax(scores_BHTS, M).to(query_BHTK.dtype)
        dropped_BHTS = apply_dropout(weights_BHTS, self.dropout)
        output_BHTV = dropped_BHTS @ repeat_heads(key_value.value_BGSV, query_BHTK.size(1))
        if self.positions is not None and self.positions.adds_values:
            output_BHTV = output_BHTV + self.positions.values(dropped_BHTS, at.query_positions, at.key_positions)
        return output_BHTV, weights_BHTS

    def _complete(
        self, query_BHTK: Tensor, mask: Mask | None, bias: Tensor | None, at: Placement
    ) -> tuple[Mask | None, Tensor | None]:
        """Return the mask with the pattern's, and the bias with that of the positions."""
        if self.pattern is not None:
            pattern = DenseMask(self.pattern.allowed(at.query_index, at.key_index))
            mask = pattern if mask is None else mask & pattern
        if self.positions is not None and self.positions.adds_bias:
            relative = self.positions.bias(query_BHTK, at.query_positions, at.key_positions)
            bias = relative if bias is None else bias + relative
        return mask, bias

    def _in_blocks(
        self,
        query_BHTK: Tensor,
        key_value: KeyValue,
        mask: Mask | None,
        bias: Tensor | None,
        at: Placement,
        C: int,
    ) -> Tensor:
        T, S, device = query_BHTK.size(2), key_value.key_BGSK.size(2), query_BHTK.device
        # Blocks are split off once and joined again: the gradient of a slice would be as long as the whole.
        keys, values = (torch.split(x, C, dim=2) for x in key_value)
        masks = BlockMasks(self.pattern, mask, T, S, C, device)
        without_pattern = replace(self, pattern=None)
        recomputed = torch.is_grad_enabled() and not self._is_fused and self.dropout == 0.0
        outputs = []
        for number, query_BHCK in enumerate(torch.split(query_BHTK, C, dim=2)):
            chosen = masks.key_blocks(number)
            if not chosen:
                outputs.append(query_BHCK.new_zeros(*query_BHCK.shape[:3], values[0].size(3)))
                continue
            rows, columns = masks.rows[number], joined([masks.columns[block] for block in chosen], dim=0)
            arguments = (
                query_BHCK,
                [keys[block] for block in chosen],
                [values[block] for block in chosen],
                masks.mask(number, rows, columns),
                None if bias is None else indexed(bias, rows, columns),
                at.block(rows, columns),
            )
            # Scores are computed again in the backward pass rather than kept: memory grows with T, not with T · S.
            outputs.append(
                checkpoint(without_pattern._over_blocks, *arguments, use_reentrant=False, preserve_rng_state=False)
                if recomputed
                else without_pattern._over_blocks(*arguments)
            )
        return torch.cat(outputs, dim=2)

    def _over_blocks(
        self,
        query_BHCK: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        mask: Mask | None,
        bias: Tensor | None,
        at: Placement,
    ) -> Tensor:
        """Return the outputs BHCV of a block of queries over some blocks of keys."""
        key_value = KeyValue(joined(keys), joined(values))
        if not self._is_fused:
            return self.dense(query_BHCK, key_value, mask, bias, at)
        with RecomputeConcat((key_value.key_BGSK, keys), (key_value.value_BGSV, values)):
            return self.dense(query_BHCK, key_value, mask, bias, at)
