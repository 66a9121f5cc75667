"""Inference-only layers with packed projections, over flat rows."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.acceleration.beam_cache import State
from regard.acceleration.packed_linear import DecodingPrecision, packed_linear
from regard.acceleration.packed_positions import rotated, varied_mask
from regard.layers.attention import MultiHeadAttention
from regard.layers.decoder import Decoder, DecoderLayer
from regard.layers.encoder import Encoder, EncoderLayer
from regard.layers.feed_forward import FeedForward
from regard.layers.kv_cache import KeyValue
from regard.layers.norms import LayerNorm, RMSNorm
from regard.layers.patterns import SlidingWindow
from regard.layers.residual import Residual
from regard.layers.softmax_attention import Placement, SoftmaxAttention
from regard.ops import Causal, Mask
from regard.ops.feed_forward import activate
from regard.ops.masks import DenseMask

Rows = Callable[[Tensor], Tensor]
"""A function of rows (R, D)."""


class PackedNorm:
    """A norm without the cost of a module around it."""

    def __init__(self, norm: nn.Module) -> None:
        assert isinstance(norm, LayerNorm | RMSNorm)
        self._norm = norm
        self.eps, self.centred = norm.eps, isinstance(norm, LayerNorm)
        # Copies: kernels are told where they are, and what is in a model may be moved.
        self.weight_D = norm.weight.detach().clone(memory_format=torch.contiguous_format)
        self.bias_D = None
        if isinstance(norm, LayerNorm):
            self.bias_D = norm.bias.detach().clone(memory_format=torch.contiguous_format)

    def __call__(self, x_RD: Tensor) -> Tensor:
        """Normalise each row."""
        if self.bias_D is None or self.eps == 0.0:
            normed: Tensor = self._norm(x_RD)
            return normed
        return F.layer_norm(x_RD, (x_RD.size(-1),), self.weight_D, self.bias_D, self.eps)


class PackedResidual:
    """A residual connection around a function of rows."""

    def __init__(self, residual: Residual) -> None:
        self.norm = PackedNorm(residual.norm)
        self.before = residual.placement == "pre"

    def __call__(self, x_RD: Tensor, sublayer: Rows) -> Tensor:
        """Run the sublayer and add what it gives; x may be written over."""
        if self.before:
            return sublayer(self.norm(x_RD)).add_(x_RD)
        return self.norm(sublayer(x_RD).add_(x_RD))


class PackedFeedForward:
    """The feed-forward network, its gate and its first layer in one product."""

    def __init__(self, layer: FeedForward, precision: DecodingPrecision) -> None:
        self.activation = layer.activation
        self.gated = layer.gate is not None
        first = [layer.expand] if layer.gate is None else [layer.expand, layer.gate]
        self.expand, self.contract = packed_linear(first, precision), packed_linear([layer.contract], precision)

    def __call__(self, x_RD: Tensor) -> Tensor:
        """Transform each row by itself."""
        hidden = self.expand(x_RD)
        if self.gated:
            hidden_RF, gate_RF = hidden.chunk(2, dim=1)
            return self.contract(activate(hidden_RF, self.activation, gate_RF))
        return self.contract(activate(hidden, self.activation))


class PackedHeads:
    """The projections of an attention layer, and attention itself over keys and values side by side."""

    def __init__(self, layer: MultiHeadAttention, precision: DecodingPrecision, *, is_self_attention: bool) -> None:
        self.layer = layer
        self._keys, self._queries = layer.num_kv_heads * layer.d_k, layer.num_heads * layer.d_k
        self.width = layer.num_kv_heads * (layer.d_k + layer.d_v)
        """Of keys and values together."""
        if is_self_attention:
            self.together = packed_linear([layer.query, layer.key, layer.value], precision)
        else:
            self.query = packed_linear([layer.query], precision)
            self.key_value = packed_linear([layer.key, layer.value], precision)
        self.output = packed_linear([layer.output], precision)

    def query_key_value(self, x_RD: Tensor, positions_R: Tensor) -> tuple[Tensor, Tensor]:
        """Project rows that attend to one another, at these positions: queries, then keys and values."""
        together_RX = self.together(x_RD)
        query_RX, key_value_RX = together_RX[:, : self._queries], together_RX[:, self._queries :]
        if self.layer.positions is None:
            return query_RX, key_value_RX
        key_RX = rotated(self.layer, key_value_RX[:, : self._keys], positions_R)
        return rotated(self.layer, query_RX, positions_R), torch.cat([key_RX, key_value_RX[:, self._keys :]], dim=1)

    def attend(self, query_RX: Tensor, key_value_BSX: Tensor, mask: Tensor | None) -> Tensor:
        """Attend from the rows of each sentence to its keys and values; `mask` is 0 or -∞, (B, 1, N or 1, S)."""
        layer = self.layer
        query_BHNK, (key_BGSK, value_BGSV) = self._split(query_RX, key_value_BSX)
        heads_BHNV = F.scaled_dot_product_attention(
            query_BHNK,
            key_BGSK,
            value_BGSV,
            attn_mask=mask,
            scale=layer.scale,
            enable_gqa=layer.num_kv_heads != layer.num_heads,
        )
        return self.output(heads_BHNV.transpose(1, 2).reshape(query_RX.size(0), -1))

    def attend_around(self, query_RX: Tensor, key_value_BTX: Tensor, mask: Mask) -> Tensor:
        """Attend within whole sequences as the layer itself does, with its positions and its pattern: in blocks."""
        layer, index = self.layer, torch.arange(key_value_BTX.size(1))
        varied = SoftmaxAttention(layer.scale, layer.positions, layer.pattern)
        query_BHTK, key_value = self._split(query_RX, key_value_BTX)
        heads_BHTV = varied(query_BHTK, key_value, mask, None, Placement(index, index, index, index))
        return self.output(heads_BHTV.transpose(1, 2).reshape(query_RX.size(0), -1))

    def _split(self, query_RX: Tensor, key_value_BSX: Tensor) -> tuple[Tensor, KeyValue]:
        layer, B = self.layer, key_value_BSX.size(0)
        query_BHNK = query_RX.reshape(B, -1, layer.num_heads, layer.d_k).transpose(1, 2)
        key_BGSK = key_value_BSX[..., : self._keys].view(B, -1, layer.num_kv_heads, layer.d_k).transpose(1, 2)
        value_BGSV = key_value_BSX[..., self._keys :].view(B, -1, layer.num_kv_heads, layer.d_v).transpose(1, 2)
        return query_BHNK, KeyValue(key_BGSK, value_BGSV)

    def weights(self, query_RX: Tensor, key_value_BSX: Tensor, mask: Tensor | None) -> Tensor:
        """Return what each row attends to, the mean of its heads: (B, N, S)."""
        layer = self.layer
        query_BHNK, (key_BGSK, _) = self._split(query_RX, key_value_BSX)
        key_BHSK = key_BGSK.repeat_interleave(layer.num_heads // layer.num_kv_heads, dim=1)
        scores_BHNS: Tensor = query_BHNK @ key_BHSK.transpose(2, 3) * layer.scale
        return (scores_BHNS if mask is None else scores_BHNS + mask).softmax(-1).mean(1)


class PackedLayer:
    """A layer of the encoder, or of the decoder, one position at a time."""

    def __init__(self, layer: EncoderLayer | DecoderLayer, precision: DecodingPrecision) -> None:
        self.d_model = layer.self_attention.d_model
        self.heads = PackedHeads(layer.self_attention, precision, is_self_attention=True)
        self.feed_forward = PackedFeedForward(layer.feed_forward, precision)
        self.self_attention_residual, self.feed_forward_residual = map(
            PackedResidual, (layer.self_attention_residual, layer.feed_forward_residual)
        )
        self.source, self.cross_attention_residual = None, None
        if isinstance(layer, DecoderLayer) and layer.cross_attention is not None:
            assert layer.cross_attention_residual is not None
            self.source = PackedHeads(layer.cross_attention, precision, is_self_attention=False)
            self.cross_attention_residual = PackedResidual(layer.cross_attention_residual)

    def project_source(self, states_RD: Tensor) -> Tensor:
        """Return the keys and values of the source, side by side."""
        assert self.source is not None
        return self.source.key_value(states_RD)

    def __call__(self, x_RD: Tensor, apply_self_attention: Rows, apply_cross_attention: Rows | None = None) -> Tensor:
        """Apply self-attention, cross-attention and the feed-forward network."""
        x_RD = self.self_attention_residual(x_RD, apply_self_attention)
        if self.cross_attention_residual is not None:
            assert apply_cross_attention is not None
            x_RD = self.cross_attention_residual(x_RD, apply_cross_attention)
        return self.feed_forward_residual(x_RD, self.feed_forward)


class PackedStack:
    """The layers of an encoder or of a decoder, and their final norm."""

    def __init__(self, stack: Encoder | Decoder, precision: DecodingPrecision) -> None:
        packed = {layer: PackedLayer(layer, precision) for layer in dict.fromkeys(stack.layers)}  # type: ignore[arg-type]
        self.layers = [packed[layer] for layer in stack.layers]
        self.final_norm = None if stack.final_norm is None else PackedNorm(stack.final_norm)

    @property
    def widths(self) -> tuple[list[int], list[int]]:
        """How wide keys and values are together, in each layer: of what was written, and of the source."""
        sources = [layer.source for layer in self.layers if layer.source is not None]
        return [layer.heads.width for layer in self.layers], [source.width for source in sources]

    @property
    def reach(self) -> int | None:
        """How many positions to each side a state depends on, where windows in all layers bound them."""
        patterns = [layer.heads.layer.pattern for layer in self.layers]
        windows = [one for one in patterns if isinstance(one, SlidingWindow) and one.sinks == 0]
        return sum(window.size for window in windows) if len(windows) == len(patterns) else None

    def encode(self, x_BSD: Tensor, real_BS: Tensor) -> Tensor:
        """Return the states of sentences, of which some positions are padding."""
        B, S, D = x_BSD.shape
        x_RD = x_BSD.view(B * S, D)
        for layer in self.layers:
            x_RD = layer(x_RD, _encoder_self_attention(layer.heads, real_BS))
        return self._ended(x_RD).view(B, S, D)

    def step(self, x_RD: Tensor, state: State, places: slice, rows: int, record: list[Tensor] | None = None) -> Tensor:
        """Take the first rows of each sentence at these places one position further; give their states.

        A `record` is given each layer's weights (B, N, S) over the source, the mean of its heads.
        """
        B, N = places.stop - places.start, state.rows
        T = state.length
        written_BNTN = torch.from_numpy(state.ancestors_BNT[places, :rows, :T])[..., None] == torch.arange(N)
        mask_B1NS = _additive(written_BNTN, x_RD.dtype).view(B, 1, rows, T * N)
        now_B = torch.arange(places.start, places.stop) * state.ancestors_BNT.shape[2]
        now_B += torch.from_numpy(state.positions_B[places])
        at_R = (now_B[:, None] * N + torch.arange(rows)).view(-1)
        S = state.source_length
        lengths_B1 = torch.from_numpy(state.source_lengths_B[places, None])
        source_mask = _additive(torch.arange(S) < lengths_B1, x_RD.dtype)[:, None, None]
        now_BN = torch.from_numpy(state.positions_B[places, None].repeat(rows, axis=1))
        written_S = torch.arange(T).repeat_interleave(N)
        for index, layer in enumerate(self.layers):
            mask = (
                mask_B1NS
                if layer.heads.layer.is_plain
                else varied_mask(layer.heads.layer, mask_B1NS, now_BN, written_S)
            )
            apply_self_attention = _cached_self_attention(layer.heads, state.past[index], at_R, places, now_BN, mask)
            apply_cross_attention = None
            if layer.source is not None:
                source_BSX = state.source[index][places, :S]
                apply_cross_attention = _cross_attention(layer.source, source_BSX, source_mask, record)
            x_RD = layer(x_RD, apply_self_attention, apply_cross_attention)
        return self._ended(x_RD)

    def prefill(self, x_RD: Tensor, state: State, places: slice) -> Tensor:
        """Take the first positions of the sentences at these places in, by their first rows; give their states.

        The rows of each sentence come after those of the one before, as many of each; what is beyond the end of some
        is overwritten by what comes next.
        """
        B, S = places.stop - places.start, state.source_length
        index_T = torch.arange(x_RD.size(0) // B)
        read_BS = torch.arange(S) < torch.from_numpy(state.source_lengths_B[places, None])
        source_mask = _additive(read_BS, x_RD.dtype)[:, None, None]
        for index, layer in enumerate(self.layers):
            past_BTNX = state.past[index][places].view(B, -1, state.rows, layer.heads.width)
            apply_cross_attention = None
            if layer.source is not None:
                # Where nothing was read, memory holds anything, and 0 times what is not a number is not a number.
                source_BSX = state.source[index][places, :S].masked_fill_(~read_BS[:, :, None], 0.0)
                apply_cross_attention = _cross_attention(layer.source, source_BSX, source_mask, None)
            x_RD = layer(x_RD, _prefix_self_attention(layer.heads, past_BTNX, index_T), apply_cross_attention)
        return self._ended(x_RD)

    def _ended(self, x_RD: Tensor) -> Tensor:
        return x_RD if self.final_norm is None else self.final_norm(x_RD)


def _encoder_self_attention(heads: PackedHeads, real_BS: Tensor) -> Rows:
    B, S = real_BS.shape
    real_B11S = real_BS[:, None, None, :]

    def apply(x_RD: Tensor) -> Tensor:
        query_RX, key_value_RX = heads.query_key_value(x_RD, torch.arange(S).repeat(B))
        key_value_BSX = key_value_RX.reshape(B, S, heads.width)
        if heads.layer.is_plain:
            return heads.attend(query_RX, key_value_BSX, _additive(real_B11S, x_RD.dtype))
        return heads.attend_around(query_RX, key_value_BSX, DenseMask(real_B11S))

    return apply


def _prefix_self_attention(heads: PackedHeads, past_BTNX: Tensor, index_T: Tensor) -> Rows:
    B, T = past_BTNX.size(0), len(index_T)

    def apply(x_RD: Tensor) -> Tensor:
        query_RX, key_value_RX = heads.query_key_value(x_RD, index_T.repeat(B))
        key_value_BTX = key_value_RX.reshape(B, T, heads.width)
        past_BTNX[:, :T, 0] = key_value_BTX
        return heads.attend_around(query_RX, key_value_BTX, Causal())

    return apply


def _cached_self_attention(
    heads: PackedHeads, past_BSX: Tensor, at_R: Tensor, places: slice, now_BN: Tensor, mask: Tensor
) -> Rows:
    def apply(x_RD: Tensor) -> Tensor:
        query_RX, key_value_RX = heads.query_key_value(x_RD, now_BN.view(-1))
        past_BSX.view(-1, past_BSX.size(2)).index_copy_(0, at_R, key_value_RX)
        return heads.attend(query_RX, past_BSX[places, : mask.size(3)], mask)

    return apply


def _cross_attention(heads: PackedHeads, source_BSX: Tensor, mask: Tensor, record: list[Tensor] | None) -> Rows:
    def apply(x_RD: Tensor) -> Tensor:
        query_RX = heads.query(x_RD)
        if record is not None:
            record.append(heads.weights(query_RX, source_BSX, mask))
        return heads.attend(query_RX, source_BSX, mask)

    return apply


def _additive(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the additive mask M: 0 where attention is allowed, -∞ elsewhere."""
    return torch.zeros(allowed.shape, dtype=dtype).masked_fill_(~allowed, -torch.inf)
