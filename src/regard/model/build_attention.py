"""From a configuration to an attention layer and the parts that vary it."""

from regard.layers import AttentionParts, MultiHeadAttention, RMSNorm
from regard.layers.attention import head_width
from regard.layers.kinds.kind import Role
from regard.layers.positions import ALiBi, RelativePositions
from regard.model.build_kind import build_kind
from regard.model.build_pattern import build_pattern
from regard.model.config import TransformerConfig
from regard.model.variations import AlibiConfig


def build_attention(config: TransformerConfig, role: Role, layer: int) -> MultiHeadAttention:
    """Build the attention of a layer in one of its roles."""
    d_k = head_width(config.d_model, config.num_heads, "d_k", config.d_k)
    qk_norm = config.attention.qk_norm
    positions = None if role == "cross" else _positions(config, role)
    pattern = build_pattern(config, role, layer)
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


def _positions(config: TransformerConfig, role: Role) -> RelativePositions | None:
    match config.positions:
        case AlibiConfig():
            return ALiBi(config.num_heads)
    return None
