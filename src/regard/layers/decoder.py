"""The decoder: causal self-attention, cross-attention to the source, feed-forward, L times."""

from collections.abc import Iterable

from torch import Tensor, nn

from regard.errors import InputError
from regard.layers.attention import MultiHeadAttention
from regard.layers.cache import DecoderCache, DecoderLayerCache, KeyValue
from regard.layers.feed_forward import FeedForward
from regard.layers.residual import Residual
from regard.ops import Mask


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention where there is an encoder, feed-forward, each in its residual."""

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention | None,
        feed_forward: FeedForward,
        *,
        self_attention_residual: Residual,
        cross_attention_residual: Residual | None,
        feed_forward_residual: Residual,
    ) -> None:
        super().__init__()
        self.self_attention, self.self_attention_residual = self_attention, self_attention_residual
        self.cross_attention, self.cross_attention_residual = cross_attention, cross_attention_residual
        self.feed_forward, self.feed_forward_residual = feed_forward, feed_forward_residual

    def forward(
        self,
        x_BTD: Tensor,
        memory_BSD: Tensor | None = None,
        memory_mask: Mask | Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        cache: DecoderLayerCache | None = None,
        lengths_B: Tensor | None = None,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """Look back, look at the source, transform. With a cache, x is what comes after what the cache holds.

        A `mask` hides some of what came before. A `record` is given the weights BHTS with which the source was looked
        at.
        """
        past = None if cache is None else cache.past
        x_BTD = self.self_attention_residual(
            x_BTD, lambda x: self.self_attention(x, mask=mask, causal=True, cache=past, lengths=lengths_B)
        )
        if self.cross_attention is not None and self.cross_attention_residual is not None:
            attend = self.cross_attention.attend
            source = self.project_source(memory_BSD) if cache is None else cache.source
            assert source is not None, "a layer with cross-attention has projected its source"

            def look_at_source(x_BTD: Tensor) -> Tensor:
                attended = attend(x_BTD, source, memory_mask, return_weights=record is not None)
                if record is not None and attended.weights_BHTS is not None:
                    record.append(attended.weights_BHTS)
                return attended.output_BTD

            x_BTD = self.cross_attention_residual(x_BTD, look_at_source)
        x_BTD = self.feed_forward_residual(x_BTD, self.feed_forward)
        return x_BTD

    def project_source(self, memory_BSD: Tensor | None) -> KeyValue | None:
        """Give the source's keys and values for this layer's cross-attention, if it has one."""
        if self.cross_attention is None:
            return None
        if memory_BSD is None:
            raise InputError("a decoder with cross-attention needs the encoder's states, and was given none")
        return self.cross_attention.project_key_value(memory_BSD)


class Decoder(nn.Module):
    """h_{1:T} = Decoder(y_{1:T}, g_{1:T′}): the layers in turn, and the final norm if there is one."""

    def __init__(self, layers: Iterable[DecoderLayer], final_norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.final_norm = final_norm

    def start_cache(self, memory_BSD: Tensor | None = None, memory_mask: Tensor | None = None) -> DecoderCache:
        """Project the source for every layer once; what is decoded with this cache starts at its first position."""
        layers = [layer for layer in self.layers if isinstance(layer, DecoderLayer)]
        return DecoderCache([DecoderLayerCache(layer.project_source(memory_BSD)) for layer in layers], memory_mask)

    def forward(
        self,
        x_BTD: Tensor,
        memory_BSD: Tensor | None = None,
        memory_mask: Mask | Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        cache: DecoderCache | None = None,
        lengths_B: Tensor | None = None,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """Give the decoder's states BTD. With a cache, the source is what the cache was started with.

        A `mask` hides some of what came before. A `record` is given each layer's weights BHTS with which the source
        was looked at.
        """
        if cache is not None:
            memory_mask = cache.memory_mask
        for index, layer in enumerate(self.layers):
            layer_cache = None if cache is None else cache.layers[index]
            x_BTD = layer(
                x_BTD, memory_BSD, memory_mask, mask=mask, cache=layer_cache, lengths_B=lengths_B, record=record
            )
        return x_BTD if self.final_norm is None else self.final_norm(x_BTD)
