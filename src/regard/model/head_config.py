"""What an encoder alone ends in: the part of a model's configuration about its head."""

from typing import Annotated, Literal

from pydantic import Field

from regard.configs import Config
from regard.layers.heads import Pooling
from regard.model.variations import one_of


class ClassificationConfig(Config):
    """A label for each sequence."""

    kind: Literal["classification"] = "classification"
    labels: Annotated[int, Field(ge=2, le=2**24, strict=True)]
    """How many labels there are."""
    pooling: Pooling = "mean"
    """What of a sequence is classified: the mean of its states, or the first of them."""


class SpanConfig(Config):
    """Where a span starts and ends in each sequence, as for extractive question answering."""

    kind: Literal["span"] = "span"


HEADS: dict[str, type[Config]] = {"classification": ClassificationConfig, "span": SpanConfig}
HeadConfig = Annotated[ClassificationConfig | SpanConfig, one_of("the head", HEADS)]
