"""Whether a model in another runtime does what it does here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from regard.pipeline import Pipeline
from regard.tasks import score

_LOG_PROBABILITY = 1e-4
_SAME = 0.999
_BLEU = 0.3


class OtherRuntime(Protocol):
    """A model in another runtime, in token numbers: sources come with their tag and their end."""

    def greedy(self, sources: Sequence[list[int]], limits: Sequence[int], never: Sequence[int]) -> list[list[int]]:
        """Write the likeliest token again and again, up to so many, and some of them never."""

    def log_probabilities(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Give log p of each token of given targets, and of their end."""


@dataclass(frozen=True)
class Verification:
    """What was found beside the model as it is here."""

    sentences: int
    largest_difference: float
    """Of log p of a token."""
    same: float
    """The share of sentences with the same greedy output."""
    bleu: float
    """Of the greedy output here."""
    other_bleu: float
    quantized: bool

    @property
    def failure(self) -> str | None:
        """What is not as it must be, if anything."""
        if self.quantized:
            if self.bleu - self.other_bleu > _BLEU:
                return f"its greedy output has {self.other_bleu:.2f} BLEU, the model's own {self.bleu:.2f}"
            return None
        if self.largest_difference > _LOG_PROBABILITY:
            return f"a token's log-probability differs by {self.largest_difference:.2g}"
        if self.same < _SAME:
            return f"its greedy output is the same for {100 * self.same:.2f} % of sentences only"
        return None

    @property
    def text(self) -> str:
        """The findings in words."""
        return (
            f"On {self.sentences:,} sentences: log-probabilities of tokens within {self.largest_difference:.2g}, "
            f"the same greedy output for {100 * self.same:.2f} %, BLEU {self.other_bleu:.2f} (here {self.bleu:.2f})."
        )


def verify(
    other: OtherRuntime,
    pipeline: Pipeline,
    pairs: Sequence[tuple[str, str]],
    language: str | None,
    *,
    quantized: bool,
) -> Verification:
    """Compare greedy outputs, and the log-probabilities of the references' tokens."""
    sources = [pipeline.encoded(source, language) for source, _ in pairs]
    targets = [pipeline.target.encode(target) for _, target in pairs]
    here = [hypotheses[0].tokens for hypotheses in pipeline.decode(sources, beam=1)]
    limits = [pipeline.limit(source) for source in sources]
    there = other.greedy(sources, limits, sorted({*pipeline.target.special} - {pipeline.source_end}))
    forced = list(zip(sources, targets, strict=True))
    differences = [
        abs(one - two)
        for ours, theirs in zip(pipeline.token_log_probabilities(forced), other.log_probabilities(forced), strict=True)
        for one, two in zip(ours, theirs, strict=True)
    ]
    references = [target for _, target in pairs]
    bleu, other_bleu = (
        score("bleu", [pipeline.target.decode(tokens) for tokens in written], references).value
        for written in (here, there)
    )
    same = sum(one == two for one, two in zip(here, there, strict=True)) / len(pairs)
    return Verification(len(pairs), max(differences), same, bleu, other_bleu, quantized)
