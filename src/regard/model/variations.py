"""How attention is varied: the part of a model's configuration about positions, patterns and kinds of attention.

Each variation is a table with its `kind` and its options; its name alone stands for the table with the defaults.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from regard.configs import Config
from regard.errors import InputError
from regard.layers.kinds.kind import Role
from regard.layers.kinds.linear import FeatureMap, Gating
from regard.layers.patterns.blocks import check_matrix
from regard.layers.positions.t5_bias import check_t5_buckets

Size = Annotated[int, Field(ge=1, lt=2**31, strict=True)]
Count = Annotated[int, Field(ge=0, lt=2**31, strict=True)]
Factor = Annotated[float, Field(ge=1.0, strict=True)]
Flag = Annotated[bool, Field(strict=True)]


def _block_row(row: Any) -> Any:
    """Return a row of 0s and 1s in a string as a tuple."""
    if not isinstance(row, str):
        return row
    if set(row) - {"0", "1"}:
        raise InputError(f"a row of the matrix of blocks is {row!r}; it is written in 0s and 1s, as in '110'")
    return tuple(int(value) for value in row)


BlockRow = Annotated[tuple[Annotated[int, Field(ge=0, le=1, strict=True)], ...], BeforeValidator(_block_row)]


def one_of(what: str, choices: Mapping[str, type[Config]], plain: tuple[str, ...] = ()) -> BeforeValidator:
    """Return a validator of a table by its `kind`, or of a name that stands for the table with its defaults."""

    def read(value: Any) -> Any:
        name = value.get("kind") if isinstance(value, dict) else value
        if not isinstance(name, str):
            return value
        if name in plain and value == name:
            return value
        if name not in choices:
            known = [*plain, *choices]
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it is one of {', '.join(known)}"
            raise InputError(f"{what} {name!r} is not known; {hint}")
        return choices[name].model_validate(value if isinstance(value, dict) else {"kind": name})

    return BeforeValidator(read)


class AlibiConfig(Config):
    """ALiBi: a penalty on the scores that grows with the distance (Press et al. 2022)."""

    kind: Literal["alibi"] = "alibi"


class LinearScalingConfig(Config):
    """Positions divided by a factor: position interpolation (Chen et al. 2023)."""

    kind: Literal["linear"] = "linear"
    factor: Factor
    """How many times as long sequences become."""


class NtkScalingConfig(Config):
    """A larger base, by which slow pairs turn as if positions were divided by the factor (NTK-aware)."""

    kind: Literal["ntk"] = "ntk"
    factor: Factor
    """How many times as long sequences become."""


class YarnScalingConfig(Config):
    """YaRN (Peng et al. 2023): slow pairs turn as if positions were divided by the factor, fast ones as before."""

    kind: Literal["yarn"] = "yarn"
    factor: Factor
    """How many times as long sequences become."""
    original_length: Size
    """The length that the model was trained on before."""
    beta_fast: Annotated[float, Field(gt=0.0, strict=True)] = 32.0
    """Pairs that turn more often over the original length stay as they are."""
    beta_slow: Annotated[float, Field(gt=0.0, strict=True)] = 1.0
    """Pairs that turn less often turn as if positions were divided by the factor."""
    attention_factor: Annotated[float, Field(gt=0.0, strict=True)] | None = None
    """What queries and keys are multiplied by; 0.1 ln(factor) + 1 unless given."""

    def check(self) -> None:
        """Raise an `InputError` where fields do not fit together."""
        if self.beta_slow > self.beta_fast:
            raise InputError(f"beta_slow {self.beta_slow:g} is more than beta_fast {self.beta_fast:g}")


SCALINGS: dict[str, type[Config]] = {"linear": LinearScalingConfig, "ntk": NtkScalingConfig, "yarn": YarnScalingConfig}
ScalingConfig = Annotated[
    LinearScalingConfig | NtkScalingConfig | YarnScalingConfig, one_of("the scaling of positions", SCALINGS)
]


class RopeConfig(Config):
    """RoPE: queries and keys are rotated by their positions (Su et al. 2021)."""

    kind: Literal["rope"] = "rope"
    base: Annotated[float, Field(gt=1.0, strict=True)] = 10_000.0
    """The larger it is, the slower the slowest pair of numbers turns."""
    scaling: ScalingConfig | None = None
    """How a model is brought to sequences longer than those it was trained on: a table whose kind is linear, ntk or
    yarn."""


class T5Config(Config):
    """T5's bias: learned for each head and bucket of distances, shared by a stack's layers (Raffel et al. 2020)."""

    kind: Literal["t5"] = "t5"
    buckets: Size = 32
    """How many biases each head has."""
    max_distance: Size = 128
    """From here on all distances share a bucket."""

    def check(self) -> None:
        """Raise an `InputError` where fields do not fit together."""
        check_t5_buckets(self.buckets, self.max_distance)


class ShawConfig(Config):
    """Shaw's relative positions: a learned key and value for each distance (Shaw et al. 2018)."""

    kind: Literal["shaw"] = "shaw"
    max_distance: Size = 16
    """Longer distances are clipped to it."""


RelativeConfig = AlibiConfig | RopeConfig | T5Config | ShawConfig
RELATIVE: dict[str, type[Config]] = {"alibi": AlibiConfig, "rope": RopeConfig, "t5": T5Config, "shaw": ShawConfig}
ABSOLUTE = ("sinusoidal", "learned", "none")
PositionsConfig = Annotated[
    Literal["sinusoidal", "learned", "none"] | RelativeConfig, one_of("positions", RELATIVE, ABSOLUTE)
]


def position_kind(positions: str | RelativeConfig) -> str:
    """Return the name of a kind of positions.

    >>> position_kind("learned"), position_kind(AlibiConfig())
    ('learned', 'alibi')
    """
    return positions if isinstance(positions, str) else positions.kind


class WindowConfig(Config):
    """A sliding window: each query attends to its neighbors (Beltagy et al. 2020)."""

    kind: Literal["window"] = "window"
    size: Size = 256
    """How many keys to each side a query attends to; in a decoder, how many before it."""
    sinks: Count = 0
    """The first positions, which every query attends to (attention sinks, Xiao et al. 2024)."""


class LongformerConfig(Config):
    """A sliding window and global tokens (Longformer, Beltagy et al. 2020)."""

    kind: Literal["longformer"] = "longformer"
    size: Size = 256
    """How many keys to each side a query attends to; in a decoder, how many before it."""
    global_tokens: Size = 1
    """The first positions, which attend to all keys (in a decoder, to all before them) and which all attend to."""


class BigBirdConfig(Config):
    """A window, global and random blocks (BigBird, Zaheer et al. 2020)."""

    kind: Literal["bigbird"] = "bigbird"
    block: Size = 64
    """How many positions a block has."""
    window_blocks: Count = 1
    """How many blocks to each side a block attends to; in a decoder, how many before it."""
    global_blocks: Count = 1
    """The first blocks, which attend to all blocks (in a decoder, to all before them) and which all attend to."""
    random_blocks: Count = 3
    """How many earlier blocks each block samples; in an encoder both attend to each other."""
    seed: Count = 0
    """What is sampled is a function of this, of the layer and of the block."""


class BlocksConfig(Config):
    """A fixed block-sparse pattern: a matrix says which blocks of keys a block of queries attends to."""

    kind: Literal["blocks"] = "blocks"
    rows: tuple[BlockRow, ...]
    """The matrix, a row for each block of queries: "110", or [1, 1, 0]. A sequence ends where the matrix does."""
    block: Size = 64
    """How many positions a block has."""

    @property
    def longest(self) -> int:
        """How many positions the matrix is for."""
        return len(self.rows) * self.block

    def check(self) -> None:
        """Raise an `InputError` unless the matrix is square."""
        check_matrix(self.rows)


PATTERNS: dict[str, type[Config]] = {
    "window": WindowConfig,
    "longformer": LongformerConfig,
    "bigbird": BigBirdConfig,
    "blocks": BlocksConfig,
}
PatternConfig = Annotated[
    WindowConfig | LongformerConfig | BigBirdConfig | BlocksConfig, one_of("the pattern", PATTERNS)
]


class LinearConfig(Config):
    """Linear attention: features of queries and keys in place of the softmax (Katharopoulos et al. 2020)."""

    kind: Literal["linear"] = "linear"
    feature_map: FeatureMap = "elu"
    """elu(x) + 1, relu(x) + 0.001, or the softmax over the features of a head, of x and of -x."""
    gating: Gating = "none"
    """How the past fades, in a decoder: a decay for each head (retention), or gates for each feature (gla)."""


class PerformerConfig(Config):
    """Performer: softmax attention approximated by random features, FAVOR+ (Choromanski et al. 2021)."""

    kind: Literal["performer"] = "performer"
    features: Size = 128
    """How many random features a layer has; the error falls with their root."""
    seed: Count = 0
    """The seed of the random features of all layers."""


class LinformerConfig(Config):
    """Linformer: attention over learned mixtures of positions, in an encoder (Wang et al. 2020)."""

    kind: Literal["linformer"] = "linformer"
    width: Size = 128
    """How many mixtures there are."""
    max_length: Size = 1024
    """The longest sequence."""

    @property
    def longest(self) -> int:
        """How many positions are mixed."""
        return self.max_length


class NystromConfig(Config):
    """Nyströmformer: softmax attention approximated by way of landmarks, in an encoder (Xiong et al. 2021)."""

    kind: Literal["nystrom"] = "nystrom"
    landmarks: Size = 64
    """How many means of positions there are."""
    iterations: Size = 6
    """How often the pseudo-inverse is improved."""
    convolution: Count = 0
    """Over how many positions, an odd number, a depthwise convolution of the values runs; 0 for none."""


KINDS: dict[str, type[Config]] = {
    "linear": LinearConfig,
    "performer": PerformerConfig,
    "linformer": LinformerConfig,
    "nystrom": NystromConfig,
}
KindConfig = Annotated[
    Literal["softmax"] | LinearConfig | PerformerConfig | LinformerConfig | NystromConfig,
    one_of("the kind of attention", KINDS, ("softmax",)),
]


class RoleConfig(Config):
    """What one role of attention has of its own: the encoder's, the decoder's or cross-attention."""

    pattern: PatternConfig | Literal["none"] | None = None
    """A sparse pattern; "none" where the other roles have one."""
    kind: KindConfig | None = None
    """The kind of attention."""


class AttentionConfig(Config):
    """How attention differs from softmax(QKᵀ/√d_k)V over all keys."""

    pattern: PatternConfig | None = None
    """A sparse pattern of self-attention, in the encoder and in the decoder."""
    kind: KindConfig = "softmax"
    """The kind of self-attention, in the encoder and in the decoder."""
    qk_norm: Flag = False
    """Whether each head's queries and keys are normalized (RMSNorm) before they are compared."""
    softcap: Annotated[float, Field(gt=0.0, strict=True)] | None = None
    """Scores are kept between -softcap and softcap, by softcap · tanh(score / softcap)."""
    scale: Annotated[float, Field(gt=0.0, strict=True)] | None = None
    """What scores are multiplied by; 1/√d_k unless given."""
    encoder: RoleConfig = RoleConfig()
    """What the encoder's self-attention has of its own."""
    decoder: RoleConfig = RoleConfig()
    """What the decoder's self-attention has of its own."""
    cross: RoleConfig = RoleConfig()
    """What cross-attention has of its own."""

    def pattern_of(self, role: Role) -> PatternConfig | None:
        """Return the pattern of a role; None where queries attend to all keys."""
        own: PatternConfig | Literal["none"] | None = getattr(self, role).pattern
        chosen = own if own is not None or role == "cross" else self.pattern
        return None if chosen == "none" else chosen

    def kind_of(self, role: Role) -> KindConfig:
        """Return the kind of attention of a role."""
        own: KindConfig | None = getattr(self, role).kind
        if own is None:
            return "softmax" if role == "cross" else self.kind
        return own
