"""From a configuration to an attention layer and the parts that vary it."""

from torch import nn

from regard.errors import InputError
from regard.layers import AttentionParts, MultiHeadAttention, RMSNorm
from regard.layers.attention import head_width
from regard.layers.kinds.kind import AttentionKind, Role
from regard.layers.patterns import Pattern, SlidingWindow
from regard.layers.positions import ALiBi, RelativePositions, RotaryPositions, ShawPositions, T5Bias
from regard.layers.positions.rotary import LinearScaling, NtkScaling, Scaling, YarnScaling
from regard.layers.positions.t5_bias import t5_table
from regard.model.config import TransformerConfig
from regard.model.variations import (
    AlibiConfig,
    LinearScalingConfig,
    NtkScalingConfig,
    RopeConfig,
    ShawConfig,
    T5Config,
    WindowConfig,
    YarnScalingConfig,
)


def build_attention(
    config: TransformerConfig, role: Role, layer: int, bias_table: nn.Parameter | None = None
) -> MultiHeadAttention:
    """Build the attention of a layer in one of its roles. `bias_table` is what the layers of its stack share."""
    d_k = head_width(config.d_model, config.num_heads, "d_k", config.d_k)
    qk_norm = config.attention.qk_norm
    parts = AttentionParts(
        positions=None if role == "cross" else _positions(config, role, bias_table),
        pattern=_pattern(config, role, layer),
        kind=_kind(config, role),
        query_norm=RMSNorm(d_k, eps=config.norm_eps) if qk_norm else None,
        key_norm=RMSNorm(d_k, eps=config.norm_eps) if qk_norm else None,
        scale=config.attention.scale,
        softcap=config.attention.softcap,
    )
    return MultiHeadAttention(
        config.d_model,
        config.num_heads,
        d_k=config.d_k,
        d_v=config.d_v,
        num_kv_heads=config.num_kv_heads,
        bias=config.bias,
        dropout=config.attention_dropout,
        parts=parts,
    )


def build_bias_table(config: TransformerConfig) -> nn.Parameter | None:
    """Build T5's table of biases, which all layers of a stack share; None for other positions."""
    if not isinstance(config.positions, T5Config):
        return None
    # A layer is tied to the parameter, not to a module: see `build_embedding`.
    return t5_table(config.positions.buckets, config.num_heads)


def _positions(config: TransformerConfig, role: Role, bias_table: nn.Parameter | None) -> RelativePositions | None:
    d_k = head_width(config.d_model, config.num_heads, "d_k", config.d_k)
    match config.positions:
        case AlibiConfig():
            return ALiBi(config.num_heads)
        case RopeConfig(base=base, scaling=scaling):
            return RotaryPositions(d_k, base=base, scaling=None if scaling is None else _scaling(scaling))
        case T5Config(buckets=buckets, max_distance=max_distance):
            return T5Bias(
                config.num_heads,
                bidirectional=role == "encoder",
                buckets=buckets,
                max_distance=max_distance,
                tied_to=bias_table,
            )
        case ShawConfig(max_distance=max_distance):
            d_v = head_width(config.d_model, config.num_heads, "d_v", config.d_v)
            return ShawPositions(d_k, d_v, max_distance=max_distance, scale=config.attention.scale)
    return None


def _scaling(scaling: LinearScalingConfig | NtkScalingConfig | YarnScalingConfig) -> Scaling:
    fields = scaling.model_dump(exclude={"kind"})
    match scaling:
        case LinearScalingConfig():
            return LinearScaling(**fields)
        case NtkScalingConfig():
            return NtkScaling(**fields)
    return YarnScaling(**fields)


def _pattern(config: TransformerConfig, role: Role, layer: int) -> Pattern | None:
    attention = config.attention
    own = getattr(attention, role).pattern
    chosen = own if own is not None or role == "cross" else attention.pattern
    if chosen is None or chosen == "none":
        return None
    if role == "cross":
        raise InputError(
            f"model.attention.cross.pattern is {chosen.kind}; cross-attention has no pattern, because positions of the "
            "target and of the source do not correspond"
        )
    match chosen:
        case WindowConfig():
            return SlidingWindow(chosen.size, sinks=chosen.sinks)
    raise AssertionError(f"{chosen} has no pattern")


def _kind(config: TransformerConfig, role: Role) -> AttentionKind | None:
    attention = config.attention
    own = getattr(attention, role).kind
    chosen = own if own is not None or role == "cross" else attention.kind
    if chosen is None or chosen == "softmax":
        return None
    raise AssertionError(f"{chosen} has no kind of attention")
