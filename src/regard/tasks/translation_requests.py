"""From texts to what is searched for: sentences in a model's token numbers, and what is requested of each."""

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from regard.data import Tokenizer
from regard.data.placeholders import LETTERS, Masked, marks, masked
from regard.data.sentences import (
    around_opaque,
    composed,
    fitting_pieces,
    is_opaque,
    split_opaque,
    split_sentences,
    with_plain_spaces,
)
from regard.data.truecasing import Truecaser, without_capitals
from regard.decoding import Constraints, Hypothesis, Request, SearchSettings
from regard.decoding.constraints import State
from regard.decoding.phrases import UNREACHABLE
from regard.errors import InputError
from regard.inference.texts import checked_texts, on_one_line
from regard.inference.word_constraints import PhraseBook
from regard.tasks.translation_result import MaskedPiece, Part

_LONGEST_PIECE = 120  # tokens; longer sentences are cut into pieces


@dataclass(frozen=True)
class RequestedWords:
    """Required and forbidden phrases of each translation, and its prefix."""

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


class TextRequests:
    """Turns texts into the sources and requests of a search, for the tokenizers of a model."""

    def __init__(self, source: Tokenizer, target: Tokenizer, truecaser: Truecaser | None = None) -> None:
        self._source, self._target, self._truecaser = source, target, truecaser
        self._phrases = PhraseBook(target)
        self.tokens: Callable[[str], list[int]] = lru_cache(maxsize=64)(self._encoded)
        """Return the tokens of a text; whether a sentence fits is asked first, then for its tokens."""

    def _encoded(self, text: str) -> list[int]:
        return self._source.encode(with_plain_spaces(text))

    @property
    def languages(self) -> list[str]:
        """The languages that the model was trained to be told to write, by its tags such as <2de>."""
        return [tag[2:-1] for tag in self._source.tags if tag.startswith("<2") and tag.endswith(">")]

    def tag(self, to: str | None) -> int | None:
        """Return the token that asks for a language, if the model has any."""
        languages = self.languages
        if to is None and len(languages) > 1:
            raise InputError(f"the model writes {' and '.join(languages)}; choose one with to= (--to)")
        if to is not None and to not in languages:
            known = f"it writes {', '.join(languages)}" if languages else "it has no languages to choose from"
            raise InputError(f"language {to!r} is not one that this model writes; {known}")
        return self._source.number(f"<2{to or languages[0]}>") if languages else None

    def masked(self, text: str, to: str | None, settings: SearchSettings, requested: RequestedWords) -> Masked:
        """Return a text with marks for what is copied, and with the usual capitals."""
        found, language = Masked(text, {}, {}), self._other_language(to)
        if settings.placeholders and self._alphabet is not None and not (requested.something or requested.forbid):
            found = masked(text, language, to, marks(text))
        if not settings.fold_capitals:
            return found
        return replace(found, text=around_opaque(found.text, lambda some: self._with_usual_capitals(some, language)))

    def _with_usual_capitals(self, text: str, language: str | None) -> str:
        folded = without_capitals(text)
        has_capitals = folded == text and any(map(str.isupper, folded))
        if self._truecaser is not None and language is not None and not has_capitals:
            folded = self._truecaser.restored(folded, language)
        return folded

    def _other_language(self, to: str | None) -> str | None:
        """Return the language of the source, where the model knows two."""
        others = [language for language in self.languages if language != to] if to is not None else []
        return others[0] if len(others) == 1 else None

    def constraints(self, requested: RequestedWords) -> Constraints | None:
        """Return the constraints of requested words, the same for every sentence."""
        return self._phrases.constraints(requested.require, requested.forbid)

    def copied(
        self, piece: str, source: list[int], constraints: Constraints | None, *, opaque: bool = True
    ) -> Part | None:
        """Return a piece as it is, if there is nothing to translate in it and no forbidden word.

        Unless `opaque`, markup and long runs of letters are translated too, as code is.
        """
        is_copied = (opaque and is_opaque(piece)) or not self._source.has_words(source)
        if not is_copied or not _allows(constraints, source):
            return None
        written = Hypothesis(self._target.encode(piece), 0.0, 0.0, cut=False)
        return Part(on_one_line(piece), written, source, copied=True)

    def pieces(self, shown: Masked, longest: int, *, whole: bool) -> list[MaskedPiece]:
        """Cut a text into sentences, and those into what the model takes; with requested words it stays whole."""
        # A table of positions has an end; the tag and the end of the source need a place in it too.
        limit = min(_LONGEST_PIECE, longest - 2)
        text = composed(shown.text)

        def fits(piece: str) -> bool:
            return len(piece) <= 20 * limit and len(self.tokens(piece)) <= limit

        if whole:
            return self.uncut(shown, limit)
        pieces: list[MaskedPiece] = []
        for sentence, space in split_sentences(text):
            about = shown.part(sentence, self._letters)
            for part, gap in split_opaque(about.text, self._alphabet) or [("", "")]:
                cut = fitting_pieces(part, fits) if not is_opaque(part) else [(part, "")]
                pieces += [(piece, between, about) for piece, between in cut]
                pieces[-1] = pieces[-1][0], pieces[-1][1] + gap, about
            pieces[-1] = pieces[-1][0], pieces[-1][1] + space, about
        return pieces

    def uncut(self, shown: Masked, limit: int) -> list[MaskedPiece]:
        """Return a text as one piece; raise an `InputError` where it has more tokens than the limit."""
        text = composed(shown.text)
        bare = text.strip()
        about = shown.part(bare, self._letters)
        if len(self.tokens(about.text)) > limit:
            raise InputError(f"the text that begins {bare[:30]!r} is too long to be translated whole")
        start = text.find(bare)
        return [("", text[:start], about), (about.text, text[start + len(bare) :], about)]

    @cached_property
    def _letters(self) -> list[str]:
        """The letters that may stand for something: those that the vocabulary has no piece for."""
        return [letter for letter in LETTERS if letter not in (self._alphabet or ())]

    @cached_property
    def _alphabet(self) -> frozenset[str] | None:
        """The characters that are translated, where others are copied: with one vocabulary for both sides."""
        return self._source.alphabet if self._source is self._target and self._source.kind != "words" else None

    def request(
        self,
        source: Sequence[int],
        requested: RequestedWords,
        constraints: Constraints | None,
        limit: Callable[[int], int],
    ) -> Request:
        """Return what is searched for, for a source; `limit` is that of a target that needs so many tokens."""
        prefix = tuple(self._target.encode(with_plain_spaces(requested.prefix))) if requested.prefix else ()
        if any(number in self._target.special for number in prefix):
            raise InputError(f"{requested.prefix!r} has a word that the model does not know, and cannot write")
        if not requested.something and self._source is self._target:
            # What the vocabulary has no piece for is spelled in bytes; it must come through as it is.
            runs = self._source.spelled_in_bytes(source)
            if runs:
                both = self._phrases.constraints((), requested.forbid, runs)
                if both is not None and _fits(both, limit):  # or what is forbidden is more
                    constraints = both
        needed = len(prefix) + (0 if constraints is None else constraints.distance(constraints.start))
        return Request(
            limit=limit(needed if needed < UNREACHABLE else 0),
            prefix=prefix,
            constraints=constraints,
            seed=zlib.crc32(repr(list(source)).encode()),
        )


def _fits(constraints: Constraints, limit: Callable[[int], int]) -> bool:
    """Whether what is required can come within the limit."""
    needed = constraints.distance(constraints.start)
    return needed < UNREACHABLE and needed <= limit(needed)


def _allows(constraints: Constraints | None, tokens: Sequence[int]) -> bool:
    """Whether tokens have no forbidden word in them."""
    if constraints is None:
        return True
    state: State | None = constraints.start
    for token in tokens:
        state = None if state is None else constraints.after(state, token)
    return state is not None and not constraints.is_hanging(state)
