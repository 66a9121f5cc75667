"""From a configuration to a sparse attention pattern."""

from regard.errors import InputError
from regard.layers.kinds.kind import Role
from regard.layers.patterns import BigBird, BlockSparse, Longformer, Pattern, SlidingWindow
from regard.model.config import TransformerConfig
from regard.model.variations import BigBirdConfig, BlocksConfig, LongformerConfig, WindowConfig


def build_pattern(config: TransformerConfig, role: Role, layer: int) -> Pattern | None:
    """Build the pattern of a layer in one of its roles; None where queries attend to all keys."""
    chosen = config.attention.pattern_of(role)
    if chosen is None:
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
