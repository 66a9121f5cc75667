"""The decoder: causal self-attention, cross-attention to the source, feed-forward, L times."""

from collections.abc import Iterable

from torch import Tensor, nn

from regard.errors import InputError
from regard.layers.attention import MultiHeadAttention
from regard.layers.feed_forward import FeedForward
from regard.layers.kv_cache import DecoderCache, DecoderLayerCache
from regard.layers.residual import Residual
from regard.layers.shared_layers import stacked
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
        positions: Tensor | None = None,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """Attend to what came before, attend to the source, transform.

        With a cache, x is what comes after what the cache holds. A `mask` hides some of what came before. `positions`
        are those of x where they are not 0, 1, 2 …. The weights BHTS over the source are appended to `record`.
        """
        past, source = (None, None) if cache is None else (cache.past, cache.source)
        at = {} if positions is None else {"positions": positions}
        x_BTD = self.self_attention_residual(
            x_BTD, lambda x: self.self_attention(x, mask=mask, causal=True, cache=past, **at)
        )
        if self.cross_attention is not None and self.cross_attention_residual is not None:
            if memory_BSD is None and source is None:
                raise InputError("a decoder with cross-attention needs the encoder's states, and was given none")
            cross_attention = self.cross_attention

            def attend_to_source(x_BTD: Tensor) -> Tensor:
                if record is None:
                    output: Tensor = cross_attention(x_BTD, memory_BSD, mask=memory_mask, cache=source)
                    return output
                output, weights_BHTS = cross_attention(
                    x_BTD, memory_BSD, mask=memory_mask, cache=source, return_weights=True
                )
                record.append(weights_BHTS)
                return output

            x_BTD = self.cross_attention_residual(x_BTD, attend_to_source)
        x_BTD = self.feed_forward_residual(x_BTD, self.feed_forward)
        return x_BTD

    def start_cache(
        self, memory_BSD: Tensor | None = None, memory_mask: Tensor | None = None, *, beams: int = 1
    ) -> DecoderLayerCache:
        """Return a cache of this layer's attention modules, the source projected for cross-attention."""
        source = None
        if self.cross_attention is not None:
            if memory_BSD is None:
                raise InputError("a decoder with cross-attention needs the encoder's states, and was given none")
            source = self.cross_attention.start_source_cache(memory_BSD, memory_mask, beams=beams)
        return DecoderLayerCache(self.self_attention.start_cache(), source)


class Decoder(nn.Module):
    """h_{1:T} = Decoder(y_{1:T}, g_{1:T′}): the layers in turn, and the final norm if there is one.

    The same layer may come several times: its parameters are shared; each depth has a cache of its own.
    """

    def __init__(self, layers: Iterable[DecoderLayer], final_norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = stacked(layers)
        self.final_norm = final_norm

    def start_cache(
        self, memory_BSD: Tensor | None = None, memory_mask: Tensor | None = None, *, beams: int = 1
    ) -> DecoderCache:
        """Project the source for every layer once; what is decoded with this cache starts at its first position."""
        caches = [layer.start_cache(memory_BSD, memory_mask, beams=beams) for layer in self.layers]  # type: ignore[operator]
        return DecoderCache(caches)

    def forward(
        self,
        x_BTD: Tensor,
        memory_BSD: Tensor | None = None,
        memory_mask: Mask | Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        cache: DecoderCache | None = None,
        positions: Tensor | None = None,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """Return the decoder's states BTD. With a cache, the source is what the cache was started with.

        A `mask` hides some of what came before. Each layer's weights BHTS over the source are appended to `record`.
        """
        at = {} if positions is None else {"positions": positions}
        for index, layer in enumerate(self.layers):
            layer_cache = None if cache is None else cache.layers[index]
            x_BTD = layer(x_BTD, memory_BSD, memory_mask, mask=mask, cache=layer_cache, record=record, **at)
        return x_BTD if self.final_norm is None else self.final_norm(x_BTD)
