"""Base class of attention kinds that replace softmax attention."""

from abc import abstractmethod
from typing import ClassVar, Literal

from torch import Tensor, nn

from regard.errors import InputError
from regard.layers.kv_cache import KeyValue, KeyValueCache, PastCache
from regard.ops import Mask
from regard.ops.masks import as_mask, fitted_mask, kernel_mask

Role = Literal["encoder", "decoder", "cross"]
"""Self-attention of the encoder, causal self-attention of the decoder, attention from the decoder to the encoder."""


class AttentionKind(nn.Module):
    """Computes the heads in place of softmax(QKᵀ/√d_k)V.

    It never sees padding: a key that `allowed_BS` hides changes nothing. In a causal role no query depends on what
    comes after it.
    """

    undefined_in: ClassVar[dict[Role, str]] = {}
    """The roles that the kind has no standard form for, each with the reason in a few words."""
    takes_rotation: ClassVar[bool] = False
    """Whether queries and keys may be rotated by their positions (RoPE)."""

    @abstractmethod
    def forward(
        self,
        query_BHTK: Tensor,
        key_value: KeyValue,
        allowed_BS: Tensor | None = None,
        *,
        states_BSD: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Return the outputs BHTV of all heads over whole sequences.

        `states_BSD` is what keys and values were projected from, for kinds that compute gates from it; it is None for
        the source of a cache.
        """

    def start_cache(self) -> PastCache:
        """Return an empty cache for decoding."""
        return KeyValueCache()

    @abstractmethod
    def step(self, query_BHTK: Tensor, key_value: KeyValue, states_BTD: Tensor, cache: PastCache) -> Tensor:
        """Return the outputs BHTV of new positions, which the cache takes in."""


def key_mask(mask: Mask | Tensor | None, query_BHTK: Tensor, key_value: KeyValue) -> tuple[bool, Tensor | None]:
    """Return whether a mask is causal, and which keys it leaves (B, S); nothing else fits a kind without scores."""
    (B, H, T, _), S, device = query_BHTK.shape, key_value.key_BGSK.size(2), query_BHTK.device
    fitted = None if mask is None else fitted_mask(as_mask(mask), (B, H, T, S), 4, device)
    causal, allowed = kernel_mask(fitted, T, S, device)
    if allowed is None:
        return causal, None
    if allowed.shape[1:3] != (1, 1):
        raise InputError(
            f"a mask of shape {tuple(allowed.shape)} differs between queries; this kind of attention takes "
            f"one of the keys, ({B}, 1, 1, {S})"
        )
    return causal, allowed.expand(B, 1, 1, S)[:, 0, 0]
