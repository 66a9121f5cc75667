"""From a configuration to the modules it describes."""

from torch import nn

from regard.layers import (
    AdaptiveDecoder,
    AdaptiveEncoder,
    ClassificationHead,
    Decoder,
    DecoderLayer,
    Embedding,
    Encoder,
    EncoderLayer,
    FactorizedOutputProjection,
    FactorizedTokenEmbedding,
    FeedForward,
    Halting,
    Head,
    LayerNorm,
    LearnedPositions,
    OutputProjection,
    Pointer,
    PointerOutput,
    Residual,
    RMSNorm,
    SinusoidalPositions,
    SpanHead,
    TokenEmbedding,
)
from regard.layers.positions import AbsolutePositions
from regard.model.build_attention import build_attention
from regard.model.build_positions import build_bias_table
from regard.model.config import TransformerConfig
from regard.model.head_config import ClassificationConfig


def build_embedding(config: TransformerConfig, vocab_size: int, tied_to: Embedding | None = None) -> Embedding:
    """Build the input of a stack, with another's token matrix where the two are shared."""
    # The matrix is shared, not its module: torch.func.functional_call does not give a shared module its weight back.
    width, scaled = config.sharing.embedding_width, config.embedding_scale
    tied = None if tied_to is None else tied_to.tokens
    if width is None:
        weight = None if tied is None else tied.weight
        tokens = TokenEmbedding(vocab_size, config.d_model, scaled=scaled, tied_to=weight)
    else:
        assert tied is None or isinstance(tied, FactorizedTokenEmbedding)
        tokens = FactorizedTokenEmbedding(vocab_size, width, config.d_model, scaled=scaled, tied_to=tied)
    norm = _norm(config) if config.embedding_norm else None
    return Embedding(tokens, _positions(config), norm=norm, dropout=config.dropout)


def build_encoder(config: TransformerConfig) -> Encoder:
    """Build the encoder's stack."""
    bias_table = build_bias_table(config)
    distinct = [
        EncoderLayer(
            build_attention(config, "encoder", layer, bias_table),
            _feed_forward(config),
            self_attention_residual=_residual(config),
            feed_forward_residual=_residual(config),
        )
        for layer in range(config.sharing.distinct(config.encoder_layers))
    ]
    layers = [distinct[number] for number in config.sharing.order(config.encoder_layers)]
    halting, norm = _halting(config), _norm(config) if config.has_final_norm else None
    return Encoder(layers, norm) if halting is None else AdaptiveEncoder(layers, norm, halting)


def build_decoder(config: TransformerConfig, encoder: Encoder | None = None) -> Decoder:
    """Build the decoder's stack, with cross-attention where there is an encoder to attend to."""
    crosses, bias_table = config.encoder_layers > 0, build_bias_table(config)
    distinct = [
        DecoderLayer(
            build_attention(config, "decoder", layer, bias_table),
            build_attention(config, "cross", layer) if crosses else None,
            _feed_forward(config),
            self_attention_residual=_residual(config),
            cross_attention_residual=_residual(config) if crosses else None,
            feed_forward_residual=_residual(config),
        )
        for layer in range(config.sharing.distinct(config.decoder_layers))
    ]
    layers = [distinct[number] for number in config.sharing.order(config.decoder_layers)]
    if config.sharing.encoder_decoder:
        assert encoder is not None
        for layer, to in zip(layers, encoder.layers, strict=True):
            _tie(layer, to)  # type: ignore[arg-type]
    halting, norm = _halting(config), _norm(config) if config.has_final_norm else None
    return Decoder(layers, norm) if halting is None else AdaptiveDecoder(layers, norm, halting)


def build_output(config: TransformerConfig, embedding: Embedding) -> OutputProjection | Head:
    """Build the head, or the projection to the vocabulary, tied to the last stack's embedding where they are shared."""
    if isinstance(config.head, ClassificationConfig):
        head = config.head
        return ClassificationHead(config.d_model, head.labels, pooling=head.pooling, dropout=config.dropout)
    if config.head is not None:
        return SpanHead(config.d_model)
    tied = embedding.tokens if config.shared_embeddings in ("all", "target-output") else None
    width, bias = config.sharing.embedding_width, config.output_bias
    if width is None:
        weight = None if tied is None else tied.weight
        projection = PointerOutput if config.copying else OutputProjection
        return projection(config.vocab_size, config.d_model, tied_to=weight, bias=bias)
    assert tied is None or isinstance(tied, FactorizedTokenEmbedding)
    return FactorizedOutputProjection(config.vocab_size, width, config.d_model, tied_to=tied, bias=bias)


def build_pointer(config: TransformerConfig) -> Pointer | None:
    """Build the attention by which an output copies, if it does."""
    return Pointer(config.d_model) if config.copying else None


def _tie(layer: DecoderLayer, to: EncoderLayer) -> None:
    """Give a decoder layer the projections of an encoder layer; norms, and what varies attention, stay its own."""
    names = ("query", "key", "value", "output", "query_norm", "key_norm")
    pairs = [(getattr(layer.self_attention, name), getattr(to.self_attention, name)) for name in names]
    for mine, theirs in [*pairs, (layer.feed_forward, to.feed_forward)]:
        if mine is not None:
            for part, source in zip(mine.modules(), theirs.modules(), strict=True):
                for name, parameter in source.named_parameters(recurse=False):
                    setattr(part, name, parameter)


def _halting(config: TransformerConfig) -> Halting | None:
    act = config.sharing.act
    return None if act is None else Halting(config.d_model, threshold=act.threshold, cost=act.cost)


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
