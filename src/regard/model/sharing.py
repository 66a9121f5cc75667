"""Which parameters are used several times: the part of a model's configuration about sharing."""

from typing import Annotated, Literal

from pydantic import Field

from regard.configs import Config
from regard.errors import InputError
from regard.model.variations import Flag, Size, one_of


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
