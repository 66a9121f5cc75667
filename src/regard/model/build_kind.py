"""From a configuration to a kind of attention, and what does not go with one."""

from regard.errors import ConfigError
from regard.layers.attention import head_width
from regard.layers.kinds import (
    AttentionKind,
    LinearAttention,
    LinformerAttention,
    NystromAttention,
    PerformerAttention,
)
from regard.layers.kinds.kind import Role
from regard.layers.patterns import Pattern
from regard.layers.positions import RelativePositions
from regard.model.config import TransformerConfig
from regard.model.variations import LinearConfig, LinformerConfig, NystromConfig, PerformerConfig

_ROLES: dict[Role, str] = {"encoder": "in an encoder", "decoder": "in a decoder", "cross": "in cross-attention"}
Chosen = LinearConfig | PerformerConfig | LinformerConfig | NystromConfig


def build_kind(
    config: TransformerConfig,
    role: Role,
    layer: int,
    positions: RelativePositions | None = None,
    pattern: Pattern | None = None,
) -> AttentionKind | None:
    """Build the kind of attention of a layer in one of its roles; None where it is the softmax."""
    chosen = config.attention.kind_of(role)
    if chosen == "softmax":
        return None
    has_own = getattr(config.attention, role).kind is not None
    key = f"model.attention.{role}.kind" if has_own else "model.attention.kind"
    kind = _built(chosen, config, layer)
    _check_role(key, chosen, kind, role)
    _check_company(key, chosen, kind, config, positions, pattern)
    return kind


def _built(chosen: Chosen, config: TransformerConfig, layer: int) -> AttentionKind:
    H, scale = config.num_heads, config.attention.scale
    d_k = head_width(config.d_model, H, "d_k", config.d_k)
    match chosen:
        case LinearConfig():
            G = H if config.num_kv_heads is None else config.num_kv_heads
            return LinearAttention(config.d_model, H, G, d_k, feature_map=chosen.feature_map, gating=chosen.gating)
        case PerformerConfig():
            seed = (chosen.seed * 1_000_003 + layer) % 2**32
            return PerformerAttention(d_k, features=chosen.features, seed=seed, scale=scale)
        case LinformerConfig():
            return LinformerAttention(d_k, width=chosen.width, max_length=chosen.max_length, scale=scale)
        case NystromConfig():
            return NystromAttention(
                H,
                d_k,
                landmarks=chosen.landmarks,
                iterations=chosen.iterations,
                convolution=chosen.convolution,
                scale=scale,
            )


def _check_role(key: str, chosen: Chosen, kind: AttentionKind, role: Role) -> None:
    """Refuse a kind in a role that it has no form for."""
    if role in kind.undefined_in:
        raise ConfigError(f"{key} is {chosen.kind}, which has no form {_ROLES[role]}: {kind.undefined_in[role]}")
    if isinstance(chosen, LinearConfig) and chosen.gating != "none" and role != "decoder":
        raise ConfigError(
            f"{key} is linear with {chosen.gating} gating, which has no form {_ROLES[role]}: the past fades, and there "
            "is none where queries attend in both directions; give it as model.attention.decoder.kind"
        )


def _check_company(
    key: str,
    chosen: Chosen,
    kind: AttentionKind,
    config: TransformerConfig,
    positions: RelativePositions | None,
    pattern: Pattern | None,
) -> None:
    """Refuse what changes the scores of queries and keys, where the kind has none."""
    attention = config.attention
    if pattern is not None:
        raise ConfigError(f"{key} is {chosen.kind}, which has no scores for a pattern to choose from")
    if attention.softcap is not None:
        raise ConfigError(f"{key} is {chosen.kind}, which has no scores for model.attention.softcap to cap")
    if attention.scale is not None and isinstance(chosen, LinearConfig):
        raise ConfigError(f"{key} is linear, which has no scores for model.attention.scale to multiply")
    if positions is None:
        return
    name = getattr(config.positions, "kind", config.positions)
    if positions.adds_bias or positions.adds_values:
        raise ConfigError(f"{key} is {chosen.kind}, which has no scores for model.positions {name} to add to")
    if not kind.takes_rotation:
        raise ConfigError(
            f"{key} is {chosen.kind}, which averages queries or keys over positions: model.positions {name}, which "
            "rotates them, does not go with it"
        )
