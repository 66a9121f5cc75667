"""What a search looks for: settings for all sentences, and requests for each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from regard.configs import Config
from regard.decoding.constraints import Constraints
from regard.errors import InputError

Size = Annotated[int, Field(ge=1, le=10_000, strict=True)]
Count = Annotated[int, Field(ge=0, strict=True)]
MOST_ROWS = 100
"""How wide a beam a model may have of its own; who translates may ask for more."""
LengthPenalty = Annotated[float, Field(ge=0.0, le=10.0, strict=True)]
NotNegative = Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)]


class SearchSettings(Config):
    """How to search. A beam of 1 is greedy."""

    suggestions: ClassVar[Mapping[str, str]] = {
        "num_beams": "beam",
        "beam_size": "beam",
        "num_return_sequences": "n_best",
        "nbest": "n_best",
        "do_sample": "sample",
        "no_repeat_ngram_size": "no_repeat",
        "early_stopping": "early_stop",
        "num_beam_groups": "groups",
        "diversity_penalty": "diversity",
        "min_new_tokens": "min_length",
        "max_length": "the longest translation follows from the source, and min_length sets the shortest",
        "max_new_tokens": "the longest translation follows from the source, and min_length sets the shortest",
    }

    beam: Size = 5
    """N: how many hypotheses of a sentence are followed at once."""
    n_best: Size = 1
    """How many of them are wanted, best first."""
    length_penalty: LengthPenalty = 1.0
    """α: a hypothesis is worth log P / length^α, its end counted. The higher, the longer what is written."""
    early_stop: Annotated[bool, Field(strict=True)] = False
    """Stop once no row is worth more, as it stands, than what has ended; else once a beam's width has ended."""
    coverage_penalty: NotNegative = 0.0
    """β: for each source position, β · log min(1, the attention that it got) is added to a hypothesis' worth."""
    groups: Size = 1
    """Into how many groups the beam is divided; each keeps away from the words that those before it have chosen."""
    diversity: NotNegative = 0.5
    """What a word costs for each time that an earlier group has chosen it in this step; scores do not count it."""
    shortlist: Annotated[bool, Field(strict=True)] = False
    """Look only at the words that the model's shortlist has for the source; scores are then among these."""
    no_repeat: Count = 0
    """The length of word sequences (in tokens) that may not come twice; 0 lets all of them."""
    min_length: Count = 0
    """How many tokens there are at least."""

    sample: Annotated[bool, Field(strict=True)] = False
    """Draw words at random, as likely as the model says; n_best draws are made of each sentence."""
    temperature: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 1.0
    """Below 1 likely words become likelier, above 1 less likely."""
    top_k: Count = 0
    """Draw from the k likeliest words; 0: from all."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Draw from the fewest likeliest words that have this probability together."""
    min_p: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Draw from words that have at least this share of the likeliest one's probability."""
    seed: Count = 0
    """The same seed, sentence and place give the same draw, whatever is drawn beside it."""

    @property
    def rows(self) -> int:
        """How many rows each sentence has."""
        return self.n_best if self.sample else self.beam

    def check(self) -> None:
        """Raise an `InputError` where fields do not fit together."""
        if not self.sample and self.n_best > self.beam:
            raise InputError(f"n_best is {self.n_best}, more than the beam of {self.beam} can give")
        if self.sample and self.groups > 1:
            raise InputError(f"groups is {self.groups}; draws at random (sample) are not divided into groups")
        if not self.sample and self.beam % self.groups:
            raise InputError(f"a beam of {self.beam} cannot be divided into {self.groups} groups of the same size")


@dataclass(frozen=True)
class Request:
    """What is wanted of one sentence."""

    limit: int
    """How many tokens it may have, its end not counted."""
    prefix: tuple[int, ...] = ()
    """What it starts with."""
    constraints: Constraints | None = None
    """What must and must not come in it."""
    seed: int = 0
    """Its own part of the seed for draws at random."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished sequence, without its start and its end."""

    tokens: list[int]
    score: float
    """What it is worth: log P / length^α, the end counted in both, and the coverage penalty."""
    log_probability: float
    """log P of all its tokens and its end, as the model gives them."""
    cut: bool
    """Whether it ends because it had no room, and not because the model ended it."""
