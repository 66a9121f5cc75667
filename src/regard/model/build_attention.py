"""From a configuration to an attention layer and the parts that vary it."""

from torch import nn

from regard.layers import AttentionParts, MultiHeadAttention, RMSNorm
from regard.layers.attention import head_width
from regard.layers.kinds.kind import Role
from regard.model.build_kind import build_kind
from regard.model.build_pattern import build_pattern
from regard.model.build_positions import build_positions
from regard.model.config import TransformerConfig


def build_attention(
    config: TransformerConfig, role: Role, layer: int, bias_table: nn.Parameter | None = None
) -> MultiHeadAttention:
    """Build the attention of a layer in one of its roles. `bias_table` is what the layers of its stack share."""
    d_k = head_width(config.d_model, config.num_heads, "d_k", config.d_k)
    qk_norm = config.attention.qk_norm
    positions = None if role == "cross" else build_positions(config, role, bias_table)
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
