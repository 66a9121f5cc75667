"""Search settings for all sentences, and a request for each sentence."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from pydantic import ConfigDict, Field

from regard.configs import Config
from regard.errors import ConfigError, InputError, ModelError
from regard.files import check_names, read_json

if TYPE_CHECKING:
    from regard.decoding.constraints import Constraints

GENERATION = "generation.json"
"""The settings that a model directory comes with."""
_LARGEST_SETTINGS = 1 << 20
Size = Annotated[int, Field(ge=1, le=10_000, strict=True)]
Count = Annotated[int, Field(ge=0, strict=True)]
MOST_ROWS = 100
"""How wide a beam a model may have of its own; who translates may ask for more."""
LengthPenalty = Annotated[float, Field(ge=0.0, le=10.0, strict=True)]
NotNegative = Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)]


class SearchSettings(Config):
    """How to search. The command line makes an option of each field; its docstring is the help of the option."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    suggestions: ClassVar[Mapping[str, str]] = {
        "num_beams": "beam",
        "beam_size": "beam",
        "num_return_sequences": "n_best",
        "nbest": "n_best",
        "do_sample": "sample",
        "no_repeat_ngram_size": "no_repeat",
        "repeat_penalty": "repetition_penalty",
        "num_beam_groups": "groups",
        "diversity_penalty": "diversity",
        "min_new_tokens": "min_length",
        "max_new_tokens": "max_length",
    }

    beam: Size = 5
    """Beam size: hypotheses kept at each step; 1 is greedy search."""
    n_best: Size = 1
    """Hypotheses (or samples) returned per sentence, best first."""
    length_penalty: LengthPenalty = 1.0
    """α in the score log P / length^α; higher values favor longer outputs."""
    early_stop: Annotated[bool, Field(strict=True)] = False
    """Stop when no unfinished hypothesis outscores the finished ones."""
    coverage_penalty: NotNegative = 0.0
    """β in β · Σ log min(1, attention of a source token), a part of the score."""
    groups: Size = 1
    """Groups of a diverse beam search; the beam is divided evenly."""
    diversity: NotNegative = 0.5
    """Penalty on a token per earlier group that chose it in the same step."""
    shortlist: Annotated[bool, Field(strict=True)] = False
    """Compute only the target tokens on the model's shortlist for the source."""
    no_repeat: Count = 0
    """Length in tokens of n-grams that may not repeat; 0 allows all."""
    repetition_penalty: Annotated[float, Field(ge=1.0, le=100.0, strict=True)] = 1.0
    """Makes tokens that came before less likely: divides positive logits, multiplies negative ones; 1 is off."""
    min_length: Count = 0
    """Minimum number of tokens."""
    max_length: Count = 0
    """Maximum number of tokens; 0 derives it from the source's length (language models: min_length + 100 new ones)."""
    placeholders: Annotated[bool, Field(strict=True)] = False
    """Copy addresses and numbers by placeholders, for a model trained with them."""
    fold_capitals: Annotated[bool, Field(strict=True)] = False
    """Lower-case text in all caps, and restore usual capitals if the model has a `capitals.json`."""

    sample: Annotated[bool, Field(strict=True)] = False
    """Sample tokens from the model's distribution; no beam search."""
    temperature: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 1.0
    """Divides the logits: below 1 sharpens the distribution, above 1 flattens it."""
    top_k: Count = 0
    """Sample from the k most probable tokens; 0 uses all."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Sample from the fewest tokens whose probabilities add up to p."""
    min_p: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Sample from tokens with at least this share of the highest probability."""
    seed: Count = 0
    """Seed for sampling; a sentence's samples do not depend on its batch."""

    @property
    def rows(self) -> int:
        """How many rows each sentence has."""
        return self.n_best if self.sample else self.beam

    def with_beam_of(self, least: int) -> Self:
        """Return these settings with a beam of at least so many hypotheses, that its groups still divide."""
        times = -(-least // self.beam)
        return self if times == 1 or self.sample else self.model_copy(update={"beam": times * self.beam})

    def check(self) -> None:
        """Raise an `InputError` where fields do not fit together."""
        if not self.sample and self.n_best > self.beam:
            raise InputError(f"n_best is {self.n_best}, more than the beam of {self.beam} can give")
        if self.sample and self.groups > 1:
            raise InputError(f"groups is {self.groups}; sampling does not use groups")
        if not self.sample and self.beam % self.groups:
            raise InputError(f"a beam of {self.beam} cannot be divided into {self.groups} groups of the same size")
        if 0 < self.max_length < self.min_length:
            raise InputError(f"min_length is {self.min_length}, more than the max_length of {self.max_length}")


@dataclass(frozen=True)
class Request:
    """The search request of one sentence."""

    limit: int
    """How many tokens it may have, its end not counted."""
    prefix: tuple[int, ...] = ()
    """What it starts with."""
    constraints: "Constraints | None" = None
    """What must and must not come in it."""
    seed: int = 0
    """Its own part of the seed for draws at random."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished sequence, without its start and its end."""

    tokens: list[int]
    score: float
    """What it is worth: log P / length^α, the end counted in both, and the penalties on coverage and repetition."""
    log_probability: float
    """log P of all its tokens and its end, as the model gives them."""
    cut: bool
    """Whether it ends because it reached its limit, and not because the model ended it."""


def read_settings(path: Path) -> SearchSettings:
    """Read how a model is made to write."""
    content = read_json(path, largest=_LARGEST_SETTINGS)
    check_names(content, path)
    try:
        settings = SearchSettings.model_validate(content)
    except ConfigError as error:
        raise ModelError(f"{path}: {error}") from None
    # Who translates may ask for more; a model that came from elsewhere may not.
    for name, most in (("beam", MOST_ROWS), ("n_best", MOST_ROWS), ("min_length", 50), ("max_length", 300)):
        if getattr(settings, name) > most:
            raise ModelError(f"{path}: {name} is {getattr(settings, name)}; a model may set {most} at most")
    return settings
