"""What a pipeline returns: generated texts and attention weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import Tensor

from regard.notebook import heat_map_html, ranking_html


@dataclass(frozen=True, repr=False)
class GeneratedText:
    """What a model wrote for a text. `str()` of it is the text."""

    noun: ClassVar[str] = "text"
    """What messages call it."""

    text: str
    score: float
    """log P / length^α, less penalties; of a text generated in parts, their mean by length."""
    tokens: list[str]
    alternatives: tuple[Self, ...] = ()
    """The next best, where more than one was asked for."""
    cut: bool = False
    """Whether it, or a part of it, ends because it reached its limit, and not because the model ended it."""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        count = len(self.alternatives)
        alternatives = f", {count} alternative{'s' if count > 1 else ''}" if count else ""
        cut = ", cut" if self.cut else ""
        return f"{type(self).__name__}({self.text!r}, score={self.score:.4f}{alternatives}{cut})"

    def _repr_html_(self) -> str:
        ranked: list[GeneratedText] = [self, *self.alternatives]
        return ranking_html([(one.text, one.score) for one in ranked])

    def content(self) -> dict[str, Any]:
        """Return all that is known of it, for JSON."""
        content: dict[str, Any] = {"text": self.text, "score": round(self.score, 6), "tokens": self.tokens}
        if self.cut:
            content["cut"] = True
        content |= self._details()
        if self.alternatives:
            content["alternatives"] = [one.content() for one in self.alternatives]
        return content

    def _details(self) -> dict[str, Any]:
        """Return what a subclass knows beside."""
        return {}

    def warnings(self) -> Iterator[str]:
        """Return what may be wrong with it, a sentence each."""
        if self.cut:
            yield f"the {self.noun} reached its maximum length and is not at its end"


@dataclass(frozen=True, repr=False)
class CrossAttention:
    """The cross-attention weights of a target: of each of its tokens, over the source tokens."""

    source: list[str]
    target: list[str]
    """The last is the end of the sentence."""
    weights_LHTS: Tensor
    """Of each layer and head; they sum to 1 over the source."""

    def mean_TS(self) -> Tensor:
        """Return the mean of all heads of all layers."""
        return self.weights_LHTS.mean((0, 1))

    def __repr__(self) -> str:
        L, H, T, S = self.weights_LHTS.shape
        tokens = f"{_shortened(self.source)} → {_shortened(self.target)}"
        return f"CrossAttention({L} layers, {H} heads, {T} target × {S} source tokens: {tokens})"

    def _repr_html_(self) -> str:
        return heat_map_html(self.source, self.target, self.mean_TS().tolist())


def _shortened(tokens: list[str], shown: int = 4) -> str:
    """Return the first tokens, in quotes that also escape line breaks."""
    return repr(" ".join(tokens[:shown])) + (" …" if len(tokens) > shown else "")
