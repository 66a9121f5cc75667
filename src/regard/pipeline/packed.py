"""A Transformer that is only used: the layers of a model with their projections packed, over flat rows."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from regard.layers.attention import MultiHeadAttention
from regard.layers.decoder import DecoderLayer
from regard.layers.encoder import EncoderLayer
from regard.layers.feed_forward import FeedForward
from regard.layers.norms import LayerNorm
from regard.layers.residual import Residual
from regard.ops.feed_forward import activate
from regard.pipeline.linear import Precision, packed_linear

Rows = Callable[[Tensor], Tensor]
"""A function of rows (R, D)."""


def packed_norm(norm: nn.Module) -> Rows:
    """Give a norm without the cost of a module around it."""
    if isinstance(norm, LayerNorm) and norm.eps > 0.0:
        weight_D, bias_D, eps = norm.weight.detach(), norm.bias.detach(), norm.eps
        return lambda x_RD: F.layer_norm(x_RD, (x_RD.size(-1),), weight_D, bias_D, eps)
    return norm


class PackedResidual:
    """A residual connection around a function of rows."""

    def __init__(self, residual: Residual) -> None:
        self._norm = packed_norm(residual.norm)
        self._before = residual.placement == "pre"

    def __call__(self, x_RD: Tensor, sublayer: Rows) -> Tensor:
        """Run the sublayer and add what it gives; x may be written over."""
        if self._before:
            return sublayer(self._norm(x_RD)).add_(x_RD)
        return self._norm(sublayer(x_RD).add_(x_RD))


class PackedFeedForward:
    """The feed-forward network, its gate and its first layer in one product."""

    def __init__(self, layer: FeedForward, precision: Precision) -> None:
        self._activation = layer.activation
        self._gated = layer.gate is not None
        first = [layer.expand] if layer.gate is None else [layer.expand, layer.gate]
        self._expand, self._contract = packed_linear(first, precision), packed_linear([layer.contract], precision)

    def __call__(self, x_RD: Tensor) -> Tensor:
        """Transform each row by itself."""
        hidden = self._expand(x_RD)
        if self._gated:
            hidden_RF, gate_RF = hidden.chunk(2, dim=1)
            return self._contract(activate(hidden_RF, self._activation, gate_RF))
        return self._contract(activate(hidden, self._activation))


class PackedHeads:
    """The projections of an attention layer, and attention itself over keys and values side by side."""

    def __init__(self, layer: MultiHeadAttention, precision: Precision, *, of_itself: bool) -> None:
        self._layer = layer
        self._keys, self._queries = layer.num_kv_heads * layer.d_k, layer.num_heads * layer.d_k
        self.width = layer.num_kv_heads * (layer.d_k + layer.d_v)
        """Of keys and values together."""
        if of_itself:
            self._together = packed_linear([layer.query, layer.key, layer.value], precision)
        else:
            self.query = packed_linear([layer.query], precision)
            self.key_value = packed_linear([layer.key, layer.value], precision)
        self._output = packed_linear([layer.output], precision)

    def query_key_value(self, x_RD: Tensor) -> tuple[Tensor, Tensor]:
        """Project rows that attend to one another: queries, then keys and values."""
        together_RX = self._together(x_RD)
        return together_RX[:, : self._queries], together_RX[:, self._queries :]

    def attend(self, query_RX: Tensor, key_value_BSX: Tensor, mask: Tensor | None) -> Tensor:
        """Let the rows of each sentence attend to its keys and values; `mask` is 0 or -∞, (B, 1, N or 1, S)."""
        layer = self._layer
        B = key_value_BSX.size(0)
        query_BHNK = query_RX.view(B, -1, layer.num_heads, layer.d_k).transpose(1, 2)
        key_BGSK = key_value_BSX[..., : self._keys].view(B, -1, layer.num_kv_heads, layer.d_k).transpose(1, 2)
        value_BGSV = key_value_BSX[..., self._keys :].view(B, -1, layer.num_kv_heads, layer.d_v).transpose(1, 2)
        heads_BHNV = F.scaled_dot_product_attention(
            query_BHNK, key_BGSK, value_BGSV, attn_mask=mask, enable_gqa=layer.num_kv_heads != layer.num_heads
        )
        return self._output(heads_BHNV.transpose(1, 2).reshape(query_RX.size(0), -1))

    def weights(self, query_RX: Tensor, key_value_BSX: Tensor, mask: Tensor | None) -> Tensor:
        """Give what each row attends to, the mean of its heads: (B, N, S)."""
        layer = self._layer
        B = key_value_BSX.size(0)
        query_BHNK = query_RX.view(B, -1, layer.num_heads, layer.d_k).transpose(1, 2)
        key_BGSK = key_value_BSX[..., : self._keys].view(B, -1, layer.num_kv_heads, layer.d_k).transpose(1, 2)
        key_BHSK = key_BGSK.repeat_interleave(layer.num_heads // layer.num_kv_heads, dim=1)
        scores_BHNS: Tensor = query_BHNK @ key_BHSK.transpose(2, 3) * layer.d_k**-0.5
        return (scores_BHNS if mask is None else scores_BHNS + mask).softmax(-1).mean(1)


class PackedEncoderLayer:
    """A layer of the encoder."""

    def __init__(self, layer: EncoderLayer, precision: Precision) -> None:
        self._heads = PackedHeads(layer.self_attention, precision, of_itself=True)
        self._feed_forward = PackedFeedForward(layer.feed_forward, precision)
        self._first, self._second = map(PackedResidual, (layer.self_attention_residual, layer.feed_forward_residual))

    def __call__(self, x_RD: Tensor, mask: Tensor | None, B: int) -> Tensor:
        """Mix the positions of each sentence, then transform each."""

        def attend(x_RD: Tensor) -> Tensor:
            query_RX, key_value_RX = self._heads.query_key_value(x_RD)
            return self._heads.attend(query_RX, key_value_RX.view(B, -1, self._heads.width), mask)

        return self._second(self._first(x_RD, attend), self._feed_forward)


class PackedDecoderLayer:
    """A layer of the decoder, one position at a time."""

    def __init__(self, layer: DecoderLayer, precision: Precision) -> None:
        self.past = PackedHeads(layer.self_attention, precision, of_itself=True)
        cross = layer.cross_attention
        self.source = None if cross is None else PackedHeads(cross, precision, of_itself=False)
        self._feed_forward = PackedFeedForward(layer.feed_forward, precision)
        self._first, self._third = map(PackedResidual, (layer.self_attention_residual, layer.feed_forward_residual))
        second = layer.cross_attention_residual
        self._second = None if second is None else PackedResidual(second)

    def __call__(self, x_RD: Tensor, look_back: Rows, look_at_source: Rows) -> Tensor:
        """Look back, look at the source, transform."""
        x_RD = self._first(x_RD, look_back)
        if self._second is not None:
            x_RD = self._second(x_RD, look_at_source)
        return self._third(x_RD, self._feed_forward)
