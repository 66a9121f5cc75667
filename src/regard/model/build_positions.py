"""From a configuration to the positions that are part of attention."""

from torch import nn

from regard.layers.attention import head_width
from regard.layers.kinds.kind import Role
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
    YarnScalingConfig,
)


def build_bias_table(config: TransformerConfig) -> nn.Parameter | None:
    """Build T5's table of biases, which all layers of a stack share; None for other positions."""
    if not isinstance(config.positions, T5Config):
        return None
    # A layer is tied to the parameter, not to a module: see `build_embedding`.
    return t5_table(config.positions.buckets, config.num_heads)


def build_positions(config: TransformerConfig, role: Role, bias_table: nn.Parameter | None) -> RelativePositions | None:
    """Build the positions that are part of self-attention; None where there are none."""
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
