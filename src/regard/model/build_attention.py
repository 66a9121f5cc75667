"""From a configuration to an attention layer and the parts that vary it."""

from torch import nn

from regard.errors import InputError
from regard.layers import AttentionParts, MultiHeadAttention, RMSNorm
from regard.layers.attention import head_width
from regard.layers.kinds.kind import Role
from regard.layers.patterns import Pattern, SlidingWindow
from regard.model.build_kind import build_kind
from regard.model.build_positions import build_positions
from regard.model.config import TransformerConfig
from regard.model.variations import WindowConfig


def build_attention(
    config: TransformerConfig, role: Role, layer: int, bias_table: nn.Parameter | None = None
) -> MultiHeadAttention:
    """Build the attention of a layer in one of its roles. `bias_table` is what the layers of its stack share."""
    d_k = head_width(config.d_model, config.num_heads, "d_k", config.d_k)
    qk_norm = config.attention.qk_norm
    positions = None if role == "cross" else build_positions(config, role, bias_table)
    pattern = _pattern(config, role, layer)
    parts = AttentionParts(
        positions=positions,
        pattern=pattern,
        kind=build_kind(config, role, layer, positions, pattern),
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
