"""What is asked of a translation, and what comes of it: pieces of a text, put together again."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from torch import Tensor

from regard.data import Tokenizer
from regard.data.placeholders import Masked
from regard.data.sentences import Piece
from regard.decoding import Hypothesis
from regard.errors import InputError
from regard.notebook import heat_map_html, ranking_html

_BREAKS = dict.fromkeys(map(ord, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " ")


@dataclass(frozen=True, repr=False)
class Translation:
    """What a model made of a text. `str()` of it is the text."""

    text: str
    score: float
    """log P / length^α of each sentence, their mean by length."""
    tokens: list[str]
    alternatives: tuple["Translation", ...] = ()
    """The next best, where more than one was asked for."""
    cut: bool = False
    """Whether a sentence ends because it reached its limit, and not because the model ended it."""
    alignment: list[tuple[int, int]] | None = None
    """For each target token the source token that it attends to most, as (source, target), where asked for."""
    source_tokens: list[str] | None = None
    """What the source numbers of the alignment count."""
    untranslated: tuple[str, ...] = ()
    """Sentences that have words, and for which the model wrote nothing, or next to nothing."""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        count = len(self.alternatives)
        alternatives = f", {count} alternative{'s' if count > 1 else ''}" if count else ""
        return f"Translation({self.text!r}, score={self.score:.4f}{alternatives}{', cut' if self.cut else ''})"

    def _repr_html_(self) -> str:
        return ranking_html([(one.text, one.score) for one in (self, *self.alternatives)])


@dataclass(frozen=True, repr=False)
class CrossAttention:
    """The cross-attention weights of a translation: of each target token, over the source tokens."""

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


@dataclass(frozen=True)
class RequestedWords:
    """What is wanted of each translation beside its being good, in words."""

    require: tuple[str, ...] = ()
    """Words or phrases that must come."""
    forbid: tuple[str, ...] = ()
    """Words or phrases that must not."""
    prefix: str = ""
    """What it starts with."""

    @classmethod
    def checked(cls, require: Iterable[str], forbid: Iterable[str], prefix: str) -> "RequestedWords":
        """Return what is requested; raise an `InputError` for what is no text."""
        if not isinstance(prefix, str):
            raise InputError(f"prefix is a {type(prefix).__name__}; a string was expected")
        required, forbidden = checked_texts(require, "require"), checked_texts(forbid, "forbid")
        return cls(tuple(required), tuple(forbidden), checked_texts(prefix, "prefix")[0])

    @property
    def something(self) -> bool:
        """Whether something must come, which can be said of a whole text only."""
        return bool(self.require or self.prefix)


@dataclass(frozen=True)
class Part:
    """A piece of a text, translated."""

    text: str
    hypothesis: Hypothesis
    source: list[int]
    attention_TS: Tensor | None = None
    copied: bool = False
    """Whether there was nothing to translate in it."""


def _loses_words(piece: str, translation: str, source: Tokenizer, target: Tokenizer) -> bool:
    """Whether words went in, and none, or hardly any, came out beside what is copied character by character."""
    written = _known_letters(translation, target)
    return written == 0 or 6 * written < _known_letters(piece, source)


def _known_letters(text: str, tokenizer: Tokenizer) -> int:
    """Return how many letters and digits of a text are not spelled in bytes."""
    return sum(map(str.isalnum if tokenizer.kind == "words" else tokenizer.letters.__contains__, text))


def on_one_line(text: str) -> str:
    """Replace line breaks by spaces: a text of one line becomes one line."""
    return text.translate(_BREAKS)


def put_together(pieces: list[Piece], parts: list[list[Part]], source: Tokenizer, target: Tokenizer) -> Translation:
    """Make a text of its pieces, each with its translations, best first, and the spaces between them."""
    count = max((len(found) for found in parts), default=0)
    best, *others = [_ranked(pieces, parts, rank, source, target) for rank in range(max(count, 1))]
    return replace(best, alternatives=tuple(sorted(others, key=lambda one: -one.score)))


def _ranked(
    pieces: list[Piece], parts: list[list[Part]], rank: int, source: Tokenizer, target: Tokenizer
) -> Translation:
    """Join the translations of this rank; a piece that has not so many gives its last."""
    text, score, length, cut = "", 0.0, 0, False
    tokens: list[str] = []
    source_tokens: list[str] = []
    alignment: list[tuple[int, int]] | None = None
    untranslated: list[str] = []
    for (piece, space), found in zip(pieces, parts, strict=True):
        if found:
            part = found[min(rank, len(found) - 1)]
            weight = len(part.hypothesis.tokens) + 1
            score, length = score + part.hypothesis.score * weight, length + weight
            if part.attention_TS is not None:
                looked = part.attention_TS.argmax(1).tolist() if part.attention_TS.numel() else []
                moved = [(len(source_tokens) + at, len(tokens) + place) for place, at in enumerate(looked)]
                alignment = (alignment or []) + moved
            text += part.text
            if not part.copied and _loses_words(piece, part.text, source, target):
                untranslated.append(piece)
            tokens += map(target.token, part.hypothesis.tokens)
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


def with_copies(translation: Translation, masked: Masked) -> Translation:
    """Return a translation with what the placeholders of its source stand for."""
    if not masked.items:
        return translation
    return replace(
        translation,
        text=masked.filled(translation.text),
        alternatives=tuple(with_copies(other, masked) for other in translation.alternatives),
        untranslated=tuple(map(masked.filled, translation.untranslated)),
    )


def checked_texts(texts: str | Iterable[str], name: str) -> list[str]:
    """Return texts as a list; raise an `InputError` for what is none."""
    if isinstance(texts, str):
        texts = [texts]
    elif isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise InputError(f"{name} is a {type(texts).__name__}; a string, or a list of strings, was expected")
    lines = list(texts)
    for number, text in enumerate(lines):
        if not isinstance(text, str):
            raise InputError(f"{name}[{number}] is a {type(text).__name__}; a string was expected")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"a text has half a character (a lone surrogate) at {error.start}") from None
    return lines
