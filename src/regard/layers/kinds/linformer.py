"""Linformer: attention over learned mixtures of the positions (Wang et al. 2020)."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.layers.kinds.kind import AttentionKind, Role
from regard.layers.kv_cache import KeyValue, PastCache
from regard.ops import attention


class LinformerAttention(AttentionKind):
    """softmax(Q(E K)ᵀ · scale) F V, where E and F mix the keys and values of all positions into `width` of each.

    It approximates softmax attention as far as its weights are of low rank; with as many mixtures as positions, each of
    one position, it is exact. E and F, (width, max_length), are learned, one of each for all heads of a layer. A
    shorter sequence uses their first columns. What is hidden is 0 before it is mixed.
    """

    undefined_in: ClassVar[dict[Role, str]] = {
        "decoder": "each of its keys mixes all positions, so a query would see what comes after it",
        "cross": "its published form is self-attention alone",
    }

    def __init__(self, d_k: int, *, width: int = 128, max_length: int, scale: float | None = None) -> None:
        super().__init__()
        self.width, self.max_length = width, max_length
        self.scale = d_k**-0.5 if scale is None else scale
        self.mix_keys = nn.Parameter(torch.empty(width, max_length))
        self.mix_values = nn.Parameter(torch.empty(width, max_length))
        for mix in (self.mix_keys, self.mix_values):
            nn.init.normal_(mix, std=width**-0.5)

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
        if causal:
            raise InputError(f"Linformer has no causal form: {self.undefined_in['decoder']}")
        S = key_value.key_BGSK.size(2)
        if self.max_length < S:
            raise InputError(f"a sequence of {S} positions is longer than Linformer's max_length {self.max_length}")
        if allowed_BS is not None:
            hidden_BS = ~allowed_BS[:, None, :, None]
            key_value = KeyValue(*(x.masked_fill(hidden_BS, 0.0) for x in key_value))
        key_BGCK = _mixed(self.mix_keys, key_value.key_BGSK)
        value_BGCV = _mixed(self.mix_values, key_value.value_BGSV)
        return attention(query_BHTK, key_BGCK, value_BGCV, scale=self.scale)

    def step(self, query_BHTK: Tensor, key_value: KeyValue, states_BTD: Tensor, cache: PastCache) -> Tensor:
        """Refuse: there is no causal form."""
        raise InputError(f"Linformer has no causal form: {self.undefined_in['decoder']}")


def _mixed(mix_CS: Tensor, x_BGSK: Tensor) -> Tensor:
    """Return the mixtures BGCK of positions, for all rows and heads in one product."""
    B, G, S, K = x_BGSK.shape
    x_SX = x_BGSK.permute(2, 0, 1, 3).reshape(S, B * G * K)
    return (mix_CS[:, :S].to(x_SX.dtype) @ x_SX).view(-1, B, G, K).permute(1, 2, 0, 3)
