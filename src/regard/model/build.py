"""From a configuration to the modules it describes."""

from torch import nn

from regard.layers import (
    Decoder,
    DecoderLayer,
    Embedding,
    Encoder,
    EncoderLayer,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    OutputProjection,
    Residual,
    RMSNorm,
    SinusoidalPositions,
    TokenEmbedding,
)
from regard.layers.positions import AbsolutePositions
from regard.model.build_attention import build_attention
from regard.model.build_positions import build_bias_table
from regard.model.config import TransformerConfig


def build_embedding(config: TransformerConfig, vocab_size: int, tied_to: Embedding | None = None) -> Embedding:
    """Build the input of a stack, with another's token matrix where the two are shared."""
    # The matrix is shared, not its module: torch.func.functional_call does not give a shared module its weight back.
    weight = None if tied_to is None else tied_to.tokens.weight
    tokens = TokenEmbedding(vocab_size, config.d_model, scaled=config.embedding_scale, tied_to=weight)
    norm = _norm(config) if config.embedding_norm else None
    return Embedding(tokens, _positions(config), norm=norm, dropout=config.dropout)


def build_encoder(config: TransformerConfig) -> Encoder:
    """Build the encoder's stack."""
    bias_table = build_bias_table(config)
    layers = [
        EncoderLayer(
            build_attention(config, "encoder", layer, bias_table),
            _feed_forward(config),
            self_attention_residual=_residual(config),
            feed_forward_residual=_residual(config),
        )
        for layer in range(config.encoder_layers)
    ]
    return Encoder(layers, _norm(config) if config.has_final_norm else None)


def build_decoder(config: TransformerConfig) -> Decoder:
    """Build the decoder's stack, with cross-attention where there is an encoder to attend to."""
    crosses, bias_table = config.encoder_layers > 0, build_bias_table(config)
    layers = [
        DecoderLayer(
            build_attention(config, "decoder", layer, bias_table),
            build_attention(config, "cross", layer) if crosses else None,
            _feed_forward(config),
            self_attention_residual=_residual(config),
            cross_attention_residual=_residual(config) if crosses else None,
            feed_forward_residual=_residual(config),
        )
        for layer in range(config.decoder_layers)
    ]
    return Decoder(layers, _norm(config) if config.has_final_norm else None)


def build_output(config: TransformerConfig, embedding: Embedding) -> OutputProjection:
    """Build the projection to the vocabulary, tied to the embedding of the last stack where the two are shared."""
    tied = embedding.tokens.weight if config.shared_embeddings in ("all", "target-output") else None
    return OutputProjection(config.vocab_size, config.d_model, tied_to=tied, bias=config.output_bias)


def _feed_forward(config: TransformerConfig) -> FeedForward:
    return FeedForward(
        config.d_model,
        config.d_ff,
        activation=config.activation,
        bias=config.bias,
        dropout=config.activation_dropout,
    )


def _residual(config: TransformerConfig) -> Residual:
    return Residual(_norm(config), placement=config.norm_placement, dropout=config.dropout)


def _norm(config: TransformerConfig) -> nn.Module:
    kind = LayerNorm if config.norm == "layer" else RMSNorm
    return kind(config.d_model, eps=config.norm_eps)


def _positions(config: TransformerConfig) -> AbsolutePositions | None:
    match config.positions:
        case "sinusoidal":
            return SinusoidalPositions(config.d_model, layout=config.position_layout, offset=config.position_offset)
        case "learned":
            return LearnedPositions(config.d_model, max_positions=config.max_positions, offset=config.position_offset)
    return None
