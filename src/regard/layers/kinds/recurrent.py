"""Attention by feature maps, whose past is a state of constant size: Σ_s φ(k_s) v_sᵀ (Katharopoulos et al. 2020).

Over whole sequences the causal form is computed in chunks: within a chunk as a masked matrix product, from chunk to
chunk by the state. Time and memory grow linearly with the length. Letters beyond those of `regard.ops`: E features.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.devices import in_full_precision, to_device
from regard.layers.kinds.kind import AttentionKind
from regard.layers.kinds.scan import Tensors, scan
from regard.layers.kv_cache import KeyValue, PastCache, Rows, on_host
from regard.ops.attention import repeat_heads

_CHUNK = 64  # positions compared with each other; a power of two


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
    """Features of the queries and keys of a chunk, and its decay."""

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
        self, query_BHTK: Tensor, key_BGTK: Tensor, real_B1T1: Tensor | None, gates_BGTE: Tensor | None, state: State
    ) -> Features:
        """Return the features of a stretch of positions that comes after a state; zeros for keys that are hidden."""

    @abstractmethod
    def key_features(self, key_BGSK: Tensor, real_B1S1: Tensor | None, shift_BG1E: Tensor | None) -> Tensor:
        """Return the features BGSE of keys that all queries attend to; zeros for keys that are hidden."""

    @abstractmethod
    def query_features(self, query_BHTK: Tensor, shift_BG1E: Tensor | None) -> Tensor:
        """Return the features BHTE of queries that attend to all keys."""

    def key_shift(self, key_BGSK: Tensor, real_B1S1: Tensor | None) -> Tensor | None:
        """Return the logarithm of what features of keys are divided by, (B, G, 1, E), where that is needed."""
        return None

    def gates(self, states_BTD: Tensor | None) -> Tensor | None:
        """Return what decays are computed from, BGTE, for kinds that compute them from the states of the keys."""
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
        gates_BGTE = self.gates(states_BSD) if causal else None
        real_B1S1 = None if allowed_BS is None else allowed_BS[:, None, :, None]
        with in_full_precision(query_BHTK.device):
            if not causal:
                return self._over_all(query_BHTK, key_value, real_B1S1)
            state = self.start_state(query_BHTK, key_value)
            return scan(self._advance, state, query_BHTK, *key_value, real_B1S1, gates_BGTE)[0]

    def start_cache(self) -> PastCache:
        """Return an empty cache, which will hold the state of each row."""
        return RecurrentCache()

    def step(self, query_BHTK: Tensor, key_value: KeyValue, states_BTD: Tensor, cache: PastCache) -> Tensor:
        """Return the outputs BHTV of new positions, which the state takes in."""
        assert isinstance(cache, RecurrentCache), f"{type(cache).__name__} is of another kind of attention"
        real_B1T1 = cache.advance(query_BHTK.size(0), query_BHTK.size(2), query_BHTK.device)
        gates_BGTE = self.gates(states_BTD)
        with in_full_precision(query_BHTK.device):
            state = self.start_state(query_BHTK, key_value) if cache.state is None else cache.state
            output_BHTV, last = scan(self._advance, state, query_BHTK, *key_value, real_B1T1, gates_BGTE)
        cache.state = _state(last).each(Tensor.detach)
        return output_BHTV

    def _advance(
        self,
        before: Tensors,
        query_BHTK: Tensor,
        key_BGTK: Tensor,
        value_BGTV: Tensor,
        real_B1T1: Tensor | None,
        gates_BGTE: Tensor | None,
    ) -> tuple[Tensor, State]:
        """Return the outputs BHTV of positions that come after a state, and the state after them."""
        state = _state(before)
        found = self.causal_features(query_BHTK, key_BGTK, real_B1T1, gates_BGTE, state)
        value_BHTV = repeat_heads(_with_ones(value_BGTV, found.key_BHTE.dtype), query_BHTK.size(1))
        sums_BHTV, last_BHEV = decayed_sums(
            found.query_BHTE, found.key_BHTE, value_BHTV, found.log_decay_BHTE, state.sums_BHEV
        )
        return _normalized(sums_BHTV, value_BGTV.dtype), State(last_BHEV, found.shift_BH11)

    def _over_all(self, query_BHTK: Tensor, key_value: KeyValue, real_B1S1: Tensor | None) -> Tensor:
        """Return the outputs BHTV of queries that all attend to the same keys."""
        shift = self.key_shift(key_value.key_BGSK, real_B1S1)

        def take_in(sums: Tensors, key_BGSK: Tensor, value_BGSV: Tensor, real: Tensor | None) -> tuple[Tensor, Tensors]:
            features_BGSE = self.key_features(key_BGSK, real, shift)
            added_BGEV = features_BGSE.mT @ _with_ones(value_BGSV, features_BGSE.dtype)
            return value_BGSV[..., :0], (added_BGEV if sums[0] is None else sums[0] + added_BGEV,)

        def read(sums: Tensors, query_BHTK: Tensor) -> tuple[Tensor, Tensors]:
            assert sums[0] is not None
            sums_BHTV = self.query_features(query_BHTK, shift) @ repeat_heads(sums[0], query_BHTK.size(1))
            return _normalized(sums_BHTV, key_value.value_BGSV.dtype), sums

        _, sums = scan(take_in, (None,), *key_value, real_B1S1)
        return scan(read, sums, query_BHTK)[0]


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
        """Take in T positions of B rows; return which of them are real, (B, 1, T, 1), where not all are."""
        _, counts = self._advance(B, T)
        if (counts == T).all():
            return None
        counts_B1 = to_device(torch.from_numpy(counts), device)[:, None]
        return (torch.arange(T, device=device) < counts_B1)[:, None, :, None]

    def keep(self, rows: Rows) -> None:
        """Keep these rows, in this order."""
        if self.state is None:
            return
        host = on_host(rows)
        index = to_device(torch.from_numpy(host), self.state.sums_BHEV.device)
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


def _state(state: Tensors) -> State:
    sums_BHEV, shift_BH11 = state
    assert sums_BHEV is not None, "a state has sums"
    return State(sums_BHEV, shift_BH11)


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
