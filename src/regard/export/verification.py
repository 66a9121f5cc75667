"""Comparison of an exported model with the original."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from regard.export.check_set import CheckSet
from regard.tasks import score
from regard.tasks.translation import Translator

_LOG_PROBABILITY = 1e-4
_SAME = 0.999
_BLEU = 0.3
_ENOUGH = 500  # sentences, for a difference in BLEU to be more than noise
_RISE = 0.05  # of the negative log-likelihood of a token, where there are fewer


class OtherRuntime(Protocol):
    """A model in another runtime, in token numbers: sources come with their tag and their end."""

    def greedy(self, sources: Sequence[list[int]], limits: Sequence[int], never: Sequence[int]) -> list[list[int]]:
        """Write the likeliest token again and again, up to so many, and some of them never."""

    def log_probabilities(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Return log p of each token of given targets, and of their end."""


@dataclass(frozen=True)
class Verification:
    """What was found beside the model as it is here."""

    sentences: int
    origin: str
    """Where the sentences come from, in words."""
    largest_difference: float
    """Of the log-probability of a token."""
    rise: float
    """Of the negative log-likelihood of a token, on average."""
    same: float
    """The share of sentences with the same greedy output."""
    bleu: tuple[float, float] | None
    """Of the greedy output here and there, where there are references."""
    quantized: bool

    @property
    def failure(self) -> str | None:
        """What is not as it must be, if anything."""
        if math.isnan(self.largest_difference) or math.isnan(self.rise):
            return "a token's log-probability is not a number"
        if self.quantized and self.bleu is not None and self.sentences >= _ENOUGH:
            here, there = self.bleu
            if here - there > _BLEU:
                return f"its greedy output has {there:.2f} BLEU, the model's own {here:.2f}"
        elif self.quantized:
            if self.rise > _RISE:
                return f"the negative log-likelihood of a token is {self.rise:.2g} higher; at most {_RISE} is accepted"
        elif self.largest_difference > _LOG_PROBABILITY:
            return f"a token's log-probability differs by {self.largest_difference:.2g}"
        elif self.same < _SAME:
            return f"its greedy output is the same for {100 * self.same:.2f} % of sentences only"
        return None

    @property
    def text(self) -> str:
        """The findings in words."""
        bleu = "" if self.bleu is None else f", BLEU {self.bleu[1]:.2f} (here {self.bleu[0]:.2f})"
        return (
            f"On {self.sentences:,} {self.origin}: log-probabilities of tokens within {self.largest_difference:.2g}, "
            f"the same greedy output for {100 * self.same:.2f} %{bleu}."
        )


def verify(other: OtherRuntime, pipeline: Translator, checked: CheckSet, *, quantized: bool) -> Verification:
    """Compare greedy outputs, and the log-probabilities of the targets' tokens."""
    sources = checked.sources
    here = [hypotheses[0].tokens for hypotheses in pipeline.decode(sources, beam=1)]
    limits = [pipeline.limit(source) for source in sources]
    there = other.greedy(sources, limits, sorted({*pipeline.target.special} - {pipeline.source_end}))
    forced = list(zip(sources, checked.targets, strict=True))
    differences = [
        0.0 if one == two else one - two  # both may be -inf
        for ours, theirs in zip(pipeline.token_log_probabilities(forced), other.log_probabilities(forced), strict=True)
        for one, two in zip(ours, theirs, strict=True)
    ]
    differences_N = torch.tensor(differences, dtype=torch.float64)
    bleu = None
    if checked.references is not None:
        texts = ([pipeline.target.decode(tokens) for tokens in written] for written in (here, there))
        one, two = (score("bleu", some, checked.references).value for some in texts)
        bleu = one, two
    return Verification(
        sentences=len(sources),
        origin=checked.origin,
        largest_difference=differences_N.abs().max().item(),
        rise=differences_N.mean().item(),
        same=sum(one == two for one, two in zip(here, there, strict=True)) / len(sources),
        bleu=bleu,
        quantized=quantized,
    )
