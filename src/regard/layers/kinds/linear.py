"""Linear attention, with decay and gates (Katharopoulos et al. 2020; Sun et al. 2023; Yang et al. 2024)."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.devices import to_device
from regard.errors import InputError
from regard.layers.kinds.recurrent import Features, RecurrentKind, State, precision_of
from regard.layers.kv_cache import KeyValue
from regard.ops.attention import repeat_heads

FeatureMap = Literal["elu", "relu", "softmax"]
Gating = Literal["none", "retention", "gla"]

_GATE_RANK = 16
_GATE_TEMPERATURE = 16.0
_SMALLEST = -30.0  # the product of two features e^-30 does not underflow float32


class LinearAttention(RecurrentKind):
    """o_t = Σ_s (φ(q_t)·φ(k_s)) v_s / Σ_s φ(q_t)·φ(k_s): the softmax's exp(q·k) becomes a product of features.

    It does not approximate softmax attention: it is a kernel of its own, with weights less sharp. φ(x) is elu(x) + 1,
    relu(x) + 0.001, or the softmax over a head's features of x and of -x (Zhang et al. 2024).

    In a causal role the past may fade. With retention, a head's weights are multiplied by γ^(t-s), γ = 1 - 2^(-5-h)
    (Sun et al. 2023). With gated linear attention (GLA), each feature is multiplied by a gate between 0 and 1 at every
    position, sigmoid(W_2 W_1 x + b)^(1/16) (Yang et al. 2024). Here the weights sum to 1 with both, where the papers
    have a norm after the heads instead.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int,
        d_k: int,
        *,
        feature_map: FeatureMap = "elu",
        gating: Gating = "none",
    ) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.features = 2 * d_k if feature_map == "softmax" else d_k
        self.feature_map, self.gating = feature_map, gating
        self.gate_contract = nn.Linear(d_model, _GATE_RANK, bias=False) if gating == "gla" else None
        self.gate_expand = nn.Linear(_GATE_RANK, num_kv_heads * self.features) if gating == "gla" else None

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
        if self.gating != "none" and not causal:
            raise InputError(
                f"linear attention with {self.gating} gating was called without causal=True; the past can fade only "
                "where there is one"
            )
        return super().forward(query_BHTK, key_value, allowed_BS, states_BSD=states_BSD, causal=causal)

    def start_state(self, query_BHTK: Tensor, key_value: KeyValue) -> State:
        """Return the state before the first position: zeros."""
        B, H, V = query_BHTK.size(0), query_BHTK.size(1), key_value.value_BGSV.size(-1)
        return State(query_BHTK.new_zeros(B, H, self.features, V + 1, dtype=precision_of(query_BHTK)))

    def causal_features(
        self, query_BHTK: Tensor, key_BGTK: Tensor, real_B1T1: Tensor | None, gates_BGTE: Tensor | None, state: State
    ) -> Features:
        """Return the features of queries and keys, and how the past decays."""
        key_BHTE = repeat_heads(self.key_features(key_BGTK, real_B1T1, None), self.num_heads)
        log_decay = self._log_decay(key_BHTE, gates_BGTE)
        if log_decay is not None and real_B1T1 is not None:  # what is hidden does not make the past fade
            log_decay = log_decay.masked_fill(~real_B1T1, 0.0)
        return Features(self.query_features(query_BHTK, None), key_BHTE, log_decay)

    def key_features(self, key_BGSK: Tensor, real_B1S1: Tensor | None, shift_BG1E: Tensor | None) -> Tensor:
        """Return φ(k), 0 where keys are hidden."""
        features_BGSE = self._map(key_BGSK)
        return features_BGSE if real_B1S1 is None else features_BGSE.masked_fill(~real_B1S1, 0.0)

    def query_features(self, query_BHTK: Tensor, shift_BG1E: Tensor | None) -> Tensor:
        """Return φ(q)."""
        return self._map(query_BHTK)

    def _map(self, x_BHTK: Tensor) -> Tensor:
        x = x_BHTK.to(precision_of(x_BHTK))
        match self.feature_map:
            case "elu":
                return x.relu() + x.clamp(_SMALLEST, 0.0).exp()
            case "relu":
                return x.relu() + 1e-3
            case "softmax":
                return torch.cat([x.softmax(-1), (-x).softmax(-1)], dim=-1)

    def gates(self, states_BTD: Tensor | None) -> Tensor | None:
        """Return the gates BGTE before their sigmoid."""
        if self.gate_contract is None or self.gate_expand is None:
            return None
        if states_BTD is None:
            raise InputError("gated linear attention computes its gates from the states of the keys, and has none")
        gates_BTX: Tensor = self.gate_expand(self.gate_contract(states_BTD))
        B, T, _ = gates_BTX.shape
        return gates_BTX.view(B, T, self.num_kv_heads, self.features).transpose(1, 2)

    def _log_decay(self, key_BHTE: Tensor, gates_BGTE: Tensor | None) -> Tensor | None:
        """Return the logarithms of the decay at each position: BHTE, or (1, H, T, 1) where they are fixed."""
        if gates_BGTE is not None:
            log_decay_BGTE = F.logsigmoid(gates_BGTE.to(key_BHTE.dtype)) / _GATE_TEMPERATURE
            return repeat_heads(log_decay_BGTE, self.num_heads)
        if self.gating == "retention":
            per_head = [math.log1p(-(2.0 ** (-5 - head))) for head in range(self.num_heads)]
            decay_H = to_device(torch.tensor(per_head, dtype=key_BHTE.dtype), key_BHTE.device)
            return decay_H[:, None, None].expand(1, -1, key_BHTE.size(2), 1)
        return None
