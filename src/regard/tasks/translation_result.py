"""A translation: the pieces of a text, translated and put together again."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from regard.data import Tokenizer
from regard.data.placeholders import Masked
from regard.decoding import Hypothesis
from regard.inference.results import GeneratedText
from regard.inference.texts import on_one_line

MaskedPiece = tuple[str, str, Masked]
"""A part of a text, the space that comes after it, and the sentence that it is from, which has its placeholders."""


@dataclass(frozen=True, repr=False)
class Translation(GeneratedText):
    """What a model made of a text. `str()` of it is the text."""

    noun: ClassVar[str] = "translation"

    alignment: list[tuple[int, int]] | None = None
    """For each target token the source token that it attends to most, as (source, target), where asked for."""
    source_tokens: list[str] | None = None
    """What the source numbers of the alignment count."""
    untranslated: tuple[str, ...] = ()
    """Sentences that have words, and for which the model wrote nothing, or next to nothing."""

    def _details(self) -> dict[str, Any]:
        details: dict[str, Any] = {}
        if self.untranslated:
            details["untranslated"] = self.untranslated
        if self.alignment is not None:
            details["source_tokens"], details["alignment"] = self.source_tokens, self.alignment
        return details

    def warnings(self) -> Iterator[str]:
        """Return what may be wrong with it, a sentence each."""
        yield from super().warnings()
        for sentence in self.untranslated:
            yield f"nothing was written for {sentence[:40]!r}"


@dataclass(frozen=True)
class Part:
    """A piece of a text, translated."""

    text: str
    hypothesis: Hypothesis
    source: list[int]
    attention_TS: Tensor | None = None
    copied: bool = False
    """Whether there was nothing to translate in it."""


def _loses_words(piece: str, part: Part, source: Tokenizer, target: Tokenizer) -> bool:
    """Whether words went in, and none, or hardly any, came out beside what is copied character by character.

    Hardly any is fine where the output was cut at its maximum length.
    """
    written = _known_letters(part.text, target)
    return written == 0 or (not part.hypothesis.cut and 6 * written < _known_letters(piece, source))


def _known_letters(text: str, tokenizer: Tokenizer) -> int:
    """Return how many letters and digits of a text are not spelled in bytes."""
    return sum(map(str.isalnum if tokenizer.kind == "words" else tokenizer.letters.__contains__, text))


def put_together(
    pieces: list[MaskedPiece], parts: list[list[Part]], source: Tokenizer, target: Tokenizer
) -> Translation:
    """Make a text of its pieces, each with its translations, best first, and the spaces between them."""
    count = max((len(found) for found in parts), default=0)
    best, *others = [_ranked(pieces, parts, rank, source, target) for rank in range(max(count, 1))]
    return replace(best, alternatives=tuple(sorted(others, key=lambda one: -one.score)))


def _ranked(
    pieces: list[MaskedPiece], parts: list[list[Part]], rank: int, source: Tokenizer, target: Tokenizer
) -> Translation:
    """Join the translations of this rank; a piece that has not so many gives its last."""
    text, score, length, cut = "", 0.0, 0, False
    tokens: list[str] = []
    source_tokens: list[str] = []
    alignment: list[tuple[int, int]] | None = None
    untranslated: list[str] = []
    is_aligned = any(part.attention_TS is not None for found in parts for part in found)
    for (piece, space, shown), found in zip(pieces, parts, strict=True):
        if found:
            part = found[min(rank, len(found) - 1)]
            weight = len(part.hypothesis.tokens) + 1
            score, length = score + part.hypothesis.score * weight, length + weight
            if part.attention_TS is not None:
                looked = part.attention_TS.argmax(1).tolist() if part.attention_TS.numel() else []
                moved = [(len(source_tokens) + at, len(tokens) + place) for place, at in enumerate(looked)]
                alignment = (alignment or []) + moved
            text += shown.filled(part.text)
            if not part.copied and _loses_words(piece, part, source, target):
                untranslated.append(shown.filled(piece))
            tokens += map(target.token, part.hypothesis.tokens)
            if is_aligned:
                source_tokens += map(source.token, part.source)
            cut = cut or part.hypothesis.cut
        text += on_one_line(space)
    return Translation(
        text,
        score / max(length, 1),
        tokens,
        cut=cut,
        alignment=alignment,
        source_tokens=None if alignment is None else source_tokens,
        untranslated=tuple(untranslated),
    )
