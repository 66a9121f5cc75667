"""From a configuration to an attention layer and the parts that vary it."""

from regard.errors import InputError
from regard.layers import AttentionParts, MultiHeadAttention, RMSNorm
from regard.layers.attention import head_width
from regard.layers.kinds.kind import AttentionKind, Role
from regard.layers.patterns import BigBird, BlockSparse, Longformer, Pattern, SlidingWindow
from regard.layers.positions import ALiBi, RelativePositions
from regard.model.config import TransformerConfig
from regard.model.variations import AlibiConfig, BigBirdConfig, BlocksConfig, LongformerConfig, WindowConfig


def build_attention(config: TransformerConfig, role: Role, layer: int) -> MultiHeadAttention:
    """Build the attention of a layer in one of its roles."""
    d_k = head_width(config.d_model, config.num_heads, "d_k", config.d_k)
    qk_norm = config.attention.qk_norm
    parts = AttentionParts(
        positions=None if role == "cross" else _positions(config, role),
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


def _positions(config: TransformerConfig, role: Role) -> RelativePositions | None:
    match config.positions:
        case AlibiConfig():
            return ALiBi(config.num_heads)
    return None


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
        case LongformerConfig():
            return Longformer(chosen.size, global_tokens=chosen.global_tokens)
        case BigBirdConfig():
            return BigBird(
                window_blocks=chosen.window_blocks,
                global_blocks=chosen.global_blocks,
                random_blocks=chosen.random_blocks,
                block=chosen.block,
                seed=chosen.seed,
                layer=layer,
            )
        case BlocksConfig():
            return BlockSparse(chosen.rows, block=chosen.block)
    raise AssertionError(f"{chosen} has no pattern")


def _kind(config: TransformerConfig, role: Role) -> AttentionKind | None:
    attention = config.attention
    own = getattr(attention, role).kind
    chosen = own if own is not None or role == "cross" else attention.kind
    if chosen is None or chosen == "softmax":
        return None
    raise AssertionError(f"{chosen} has no kind of attention")
