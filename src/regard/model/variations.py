"""How attention is varied: the part of a model's configuration about positions, patterns and kinds of attention.

Each variation is a table with its `kind` and its options; its name alone stands for the table with the defaults.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from regard.configs import Config
from regard.errors import InputError

Size = Annotated[int, Field(ge=1, lt=2**31, strict=True)]
Count = Annotated[int, Field(ge=0, lt=2**31, strict=True)]
Flag = Annotated[bool, Field(strict=True)]


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


RelativeConfig = AlibiConfig
RELATIVE: dict[str, type[Config]] = {"alibi": AlibiConfig}
ABSOLUTE = ("sinusoidal", "learned", "none")
PositionsConfig = Annotated[
    Literal["sinusoidal", "learned", "none"] | RelativeConfig, one_of("positions", RELATIVE, ABSOLUTE)
]


class WindowConfig(Config):
    """A sliding window: each query attends to its neighbors (Beltagy et al. 2020)."""

    kind: Literal["window"] = "window"
    size: Size = 256
    """How many keys to each side a query attends to; in a decoder, how many before it."""
    sinks: Count = 0
    """The first positions, which every query attends to (attention sinks, Xiao et al. 2024)."""


PATTERNS: dict[str, type[Config]] = {"window": WindowConfig}
PatternConfig = Annotated[WindowConfig, one_of("the pattern", PATTERNS)]

KINDS: dict[str, type[Config]] = {}
KindConfig = Annotated[Literal["softmax"], one_of("the kind of attention", KINDS, ("softmax",))]


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


class AdaptiveConfig(Config):
    """Adaptive computation time: every position stops when it is ready (Graves 2016, Dehghani et al. 2019)."""

    threshold: Annotated[float, Field(gt=0.0, lt=1.0, strict=True)] = 0.99
    """A position stops once its halting probabilities add up to more than this."""
    cost: Annotated[float, Field(ge=0.0, strict=True)] = 0.01
    """What each step of a position adds to the loss of training."""


SHARING = ("none", "all", "sequence", "cycle", "cycle-reversed")


class SharingConfig(Config):
    """Which parameters are used several times."""

    kind: Literal["none", "all", "sequence", "cycle", "cycle-reversed"] = "none"
    """How a stack shares its layers: all are one (Universal Transformer, ALBERT), or a few come in sequence, 1 1 2 2,
    in a cycle, 1 2 1 2, or in a cycle that ends reversed, 1 2 2 1 (Takase and Kiyono 2021)."""
    layers: Size | None = None
    """M: how many layers of each stack are distinct in the last three; half of them unless given."""
    encoder_decoder: Flag = False
    """Whether the decoder's self-attention and feed-forward have the parameters of the encoder's."""
    embedding_width: Size | None = None
    """E: the width of the token matrix, which is projected to d_model (factorized embeddings, ALBERT)."""
    act: AdaptiveConfig | None = None
    """Adaptive computation time, where all layers are one."""

    def distinct(self, depth: int) -> int:
        """Return how many layers of a stack of this depth are distinct."""
        match self.kind:
            case "none":
                return depth
            case "all":
                return min(depth, 1)
        return (depth + 1) // 2 if self.layers is None else min(depth, self.layers)

    def order(self, depth: int) -> tuple[int, ...]:
        """Return which of the distinct layers each depth applies.

        >>> SharingConfig(kind="cycle-reversed", layers=2).order(6)
        (0, 1, 0, 1, 1, 0)
        """
        M = self.distinct(depth)
        match self.kind:
            case "sequence":
                return tuple(number * M // depth for number in range(depth))
            case "cycle-reversed":
                forward = M * (-(-depth // M) - 1) if depth > M else depth  # whole cycles before the last
                return tuple(number % M if number < forward else M - 1 - number % M for number in range(depth))
        return tuple(number % M for number in range(depth))

    def check(self) -> None:
        """Raise an `InputError` where fields do not fit together."""
        if self.layers is not None and self.kind in ("none", "all"):
            raise InputError(
                f"layers is {self.layers}, which is for sequence, cycle and cycle-reversed; kind is {self.kind}"
            )
        if self.act is not None and self.kind != "all":
            raise InputError(f"act is for one layer applied many times, kind all; kind is {self.kind}")


Sharing = Annotated[SharingConfig, one_of("sharing", dict.fromkeys(SHARING, SharingConfig))]
