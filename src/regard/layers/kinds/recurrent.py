"""Attention by feature maps, whose past is a state of constant size: Σ_s φ(k_s) v_sᵀ (Katharopoulos et al. 2020).

Over whole sequences the causal form is computed in chunks: within a chunk as a masked matrix product, from chunk to
chunk by the state. Time and memory grow linearly with the length. Letters beyond those of `regard.ops`: E features.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.layers.kinds.kind import AttentionKind
from regard.layers.kv_cache import KeyValue, PastCache, Rows, on_host
from regard.ops.attention import repeat_heads

_CHUNK = 64  # positions compared with each other; a power of two
_SEGMENT = 1024  # positions whose features are in memory at once


class State(NamedTuple):
    """What is left of the past, each with a row of the batch in its first dimension."""

    sums_BHEV: Tensor
    """Σ_s φ(k_s) [v_s, 1]ᵀ: the last column sums the features alone, for the weights to sum to 1."""
    shift_BH11: Tensor | None = None
    """The logarithm of what the features of keys are divided by, for kinds whose features could overflow."""

    def each(self, function: Callable[[Tensor], Tensor]) -> "State":
        """Return the state with a function applied to each of its tensors."""
        return State(function(self.sums_BHEV), None if self.shift_BH11 is None else function(self.shift_BH11))


class Features(NamedTuple):
    """What a stretch of positions is to the sums over the past."""

    query_BHTE: Tensor
    key_BHTE: Tensor
    log_decay_BHTE: Tensor | None = None
    """What the past is multiplied by on the way to each position, as a logarithm; the last size may be 1."""
    shift_BH11: Tensor | None = None
    """The `State.shift_BH11` after these positions."""


class RecurrentKind(AttentionKind):
    """o_t = Σ_s (φ(q_t)·φ(k_s)) v_s / Σ_s φ(q_t)·φ(k_s), with positive features φ.

    A subclass says what the features are. The sums run over s ≤ t in a causal role, else over all keys.
    """

    takes_rotation: ClassVar[bool] = True

    @abstractmethod
    def start_state(self, query_BHTK: Tensor, key_value: KeyValue) -> State:
        """Return the state before the first position."""

    @abstractmethod
    def causal_features(
        self, query_BHTK: Tensor, key_BGTK: Tensor, allowed_BT: Tensor | None, states_BTD: Tensor | None, state: State
    ) -> Features:
        """Return the features of a stretch of positions that comes after a state; zeros for keys that are hidden."""

    @abstractmethod
    def key_features(self, key_BGSK: Tensor, allowed_BS: Tensor | None, shift_BG1E: Tensor | None) -> Tensor:
        """Return the features BGSE of keys that all queries attend to."""

    @abstractmethod
    def query_features(self, query_BHTK: Tensor, shift_BG1E: Tensor | None) -> Tensor:
        """Return the features BHTE of queries that attend to all keys."""

    def key_shift(self, key_blocks: Sequence[Tensor], allowed_blocks: Sequence[Tensor | None]) -> Tensor | None:
        """Return the logarithm of what features of keys are divided by, (B, G, 1, E), where that is needed."""
        return None

    def forward(
        self,
        query_BHTK: Tensor,
        key_value: KeyValue,
        allowed_BS: Tensor | None = None,
        *,
        states_BSD: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Return the outputs BHTV of all heads over whole sequences."""
        if not causal:
            return self._over_all(query_BHTK, key_value, allowed_BS)
        state, outputs = self.start_state(query_BHTK, key_value), []
        segments = [_segments(x, 2) for x in (query_BHTK, *key_value)]
        count = len(segments[0])
        for segment in zip(
            *segments, _segments_or_none(allowed_BS, 1, count), _segments_or_none(states_BSD, 1, count), strict=True
        ):
            output_BHTV, state = _recomputed(count, self._advance, *segment, state)
            outputs.append(output_BHTV)
        return torch.cat(outputs, dim=2)

    def start_cache(self) -> PastCache:
        """Return an empty cache, which will hold the state of each row."""
        return RecurrentCache()

    def step(self, query_BHTK: Tensor, key_value: KeyValue, states_BTD: Tensor, cache: PastCache) -> Tensor:
        """Return the outputs BHTV of new positions, which the state takes in."""
        assert isinstance(cache, RecurrentCache), f"{type(cache).__name__} is of another kind of attention"
        allowed_BT = cache.advance(query_BHTK.size(0), query_BHTK.size(2), query_BHTK.device)
        state = self.start_state(query_BHTK, key_value) if cache.state is None else cache.state
        output_BHTV, state = self._advance(query_BHTK, *key_value, allowed_BT, states_BTD, state)
        cache.state = state.each(Tensor.detach)
        return output_BHTV

    def _advance(
        self,
        query_BHTK: Tensor,
        key_BGTK: Tensor,
        value_BGTV: Tensor,
        allowed_BT: Tensor | None,
        states_BTD: Tensor | None,
        state: State,
    ) -> tuple[Tensor, State]:
        """Return the outputs BHTV of positions that come after a state, and the state after them."""
        found = self.causal_features(query_BHTK, key_BGTK, allowed_BT, states_BTD, state)
        value_BHTV = repeat_heads(_with_ones(value_BGTV, found.key_BHTE.dtype), query_BHTK.size(1))
        sums_BHTV, last_BHEV = decayed_sums(
            found.query_BHTE, found.key_BHTE, value_BHTV, found.log_decay_BHTE, state.sums_BHEV
        )
        return _normalized(sums_BHTV, value_BGTV.dtype), State(last_BHEV, found.shift_BH11)

    def _over_all(self, query_BHTK: Tensor, key_value: KeyValue, allowed_BS: Tensor | None) -> Tensor:
        """Return the outputs BHTV of queries that all attend to the same keys."""
        keys, values = (_segments(x, 2) for x in key_value)
        allowed = _segments_or_none(allowed_BS, 1, len(keys))
        shift = self.key_shift(keys, allowed)
        sums = [
            _recomputed(len(keys), self._summed, *segment, shift) for segment in zip(keys, values, allowed, strict=True)
        ]
        sums_BGEV = sum(sums[1:], start=sums[0])
        queries = _segments(query_BHTK, 2)
        outputs = [_recomputed(len(queries), self._read, query, sums_BGEV, shift) for query in queries]
        return torch.cat(outputs, dim=2).to(key_value.value_BGSV.dtype)

    def _summed(self, key_BGSK: Tensor, value_BGSV: Tensor, allowed_BS: Tensor | None, shift: Tensor | None) -> Tensor:
        features_BGSE = self.key_features(key_BGSK, allowed_BS, shift)
        return features_BGSE.mT @ _with_ones(value_BGSV, features_BGSE.dtype)

    def _read(self, query_BHTK: Tensor, sums_BGEV: Tensor, shift: Tensor | None) -> Tensor:
        sums_BHTV = self.query_features(query_BHTK, shift) @ repeat_heads(sums_BGEV, query_BHTK.size(1))
        return _normalized(sums_BHTV, sums_BHTV.dtype)


def decayed_sums(
    query_BHTE: Tensor, key_BHTE: Tensor, value_BHTV: Tensor, log_decay_BHTE: Tensor | None, state_BHEV: Tensor
) -> tuple[Tensor, Tensor]:
    """Return q_tᵀ S_t BHTV and the last S_t, for S_t = diag(exp(log_decay_t)) S_{t-1} + k_t v_tᵀ.

    Decays are at most 1, their logarithms at most 0. Only differences of logarithms that are at most 0 are
    exponentiated: however strong the decay, nothing overflows, and nothing is divided by what underflows.
    """
    T = query_BHTE.size(2)
    C = min(_CHUNK, 1 << max(T - 1, 0).bit_length())
    count = -(-T // C)
    query, key, value = (_chunks(x, count, C) for x in (query_BHTE, key_BHTE, value_BHTV))
    decays: Sequence[Tensor | None] = (None,) * count
    if log_decay_BHTE is None:
        weights = (query @ key.mT).tril()
    else:
        total = _chunks(log_decay_BHTE, count, C).cumsum(3)
        weights = _decayed_weights(query, key, total)
        end = total[..., -1:, :]
        query, key = query * total.exp(), key * (end - total).exp()
        decays = end.exp().mT.unbind(2)
    state, states = state_BHEV, []
    for decay, added in zip(decays, (key.mT @ value).unbind(2), strict=True):
        states.append(state)
        state = added + (state if decay is None else decay * state)
    if not states:
        return value_BHTV, state
    output = weights @ value + query @ torch.stack(states, dim=2)
    return output.flatten(2, 3)[:, :, :T], state


def _decayed_weights(query: Tensor, key: Tensor, total: Tensor) -> Tensor:
    """Return Σ_e q_te k_se exp(total_te - total_se) for s ≤ t, else 0: (…, C, C) of (…, C, E).

    One decay for all features multiplies the products. Decays of their own are split at the middle of the chunk, which
    lies between every later query and every earlier key, and each half is split in its turn.
    """
    C, E = query.size(-2), total.size(-1)
    if E == 1:
        future = torch.ones(C, C, dtype=torch.bool, device=query.device).triu(1)
        return (query @ key.mT) * (total - total.mT).masked_fill(future, -torch.inf).exp()
    if C == 1:
        return (query * key).sum(-1, keepdim=True)
    halves = [x.view(*x.shape[:-2], 2, C // 2, x.size(-1)) for x in (query, key, total)]
    early, late = _decayed_weights(*halves).unbind(-3)
    (_, late_query), (early_key, _), (before, after) = (x.unbind(-3) for x in halves)
    middle = before[..., -1:, :]
    across = (late_query * (after - middle).exp()) @ (early_key * (middle - before).exp()).mT
    return torch.cat([F.pad(early, (0, C // 2)), torch.cat([across, late], dim=-1)], dim=-2)


class RecurrentCache(PastCache):
    """The state of each row, of the same size however many positions it has taken in."""

    def __init__(self) -> None:
        super().__init__()
        self.state: State | None = None

    def advance(self, B: int, T: int, device: torch.device) -> Tensor | None:
        """Take in T positions of B rows; return which of them are real, (B, T), where not all are."""
        _, counts = self._advance(B, T)
        if (counts == T).all():
            return None
        counts_B1 = torch.from_numpy(counts).to(device, non_blocking=True)[:, None]
        return torch.arange(T, device=device) < counts_B1

    def keep(self, rows: Rows) -> None:
        """Keep these rows, in this order."""
        if self.state is None:
            return
        host = on_host(rows)
        index = torch.from_numpy(host).to(self.state.sums_BHEV.device, non_blocking=True)
        self._lengths = self.lengths[host]
        self.state = self.state.each(lambda x: x.index_select(0, index))

    def admit(self, other: Self) -> None:
        """Take in the rows of another cache, behind those that are there."""
        if other.state is None:
            return
        if self.state is None:
            self.state, self._lengths = other.state, other._lengths
            return
        theirs = (x for x in other.state if x is not None)
        self.state = self.state.each(lambda x: torch.cat([x, next(theirs)]))
        self._lengths = np.concatenate([self.lengths, other.lengths])


def precision_of(x: Tensor) -> torch.dtype:
    """Return the type that sums over many positions are computed in: float32 at least."""
    return torch.promote_types(x.dtype, torch.float32)


def _segments(x: Tensor, dim: int) -> tuple[Tensor, ...]:
    return torch.split(x, _SEGMENT, dim)


def _segments_or_none(x: Tensor | None, dim: int, count: int) -> tuple[Tensor | None, ...]:
    return (None,) * count if x is None else torch.split(x, _SEGMENT, dim)


def _recomputed(count: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function on one of `count` segments; where there are several, the backward pass computes it again.

    So memory holds the features of one segment at a time.
    """
    if count == 1 or not torch.is_grad_enabled():
        return function(*arguments)
    return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)


def _chunks(x_BHTE: Tensor, count: int, C: int) -> Tensor:
    """Return (B, H, count, C, E), filled up with zeros."""
    missing = count * C - x_BHTE.size(2)
    x_BHTE = F.pad(x_BHTE, (0, 0, 0, missing)) if missing else x_BHTE
    return x_BHTE.view(*x_BHTE.shape[:2], count, C, x_BHTE.size(-1))


def _with_ones(value_BGSV: Tensor, dtype: torch.dtype) -> Tensor:
    return F.pad(value_BGSV.to(dtype), (0, 1), value=1.0)


def _normalized(sums_BHTV: Tensor, dtype: torch.dtype) -> Tensor:
    """Divide by the sum of the weights, in the last column; 0 where there is nothing to attend to."""
    sums, total = sums_BHTV[..., :-1], sums_BHTV[..., -1:]
    smallest = torch.finfo(sums.dtype).tiny ** 0.8  # its square need not be a number, its inverse has to
    return (sums / total.clamp_min(smallest)).to(dtype)
