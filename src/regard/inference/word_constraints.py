"""Words that must or must not come, as constraints on the text that tokens spell."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

from regard.data import Tokenizer
from regard.data.sentences import is_unspaced
from regard.decoding import Constraints
from regard.decoding.phrases import UNREACHABLE, PhraseAutomaton, token_phrase
from regard.decoding.text_phrases import Phrase, Spelling, Symbols, text_phrase
from regard.errors import InputError

_BYTE = 0x110000  # behind all characters
_KEPT = 1024  # automata
_LONGEST = 200  # characters of a phrase
_APOSTROPHES = frozenset("'’")
_CLAUSE_ENDS = frozenset(map(ord, ".,;:!?…"))


class PhraseBook:
    """Makes the constraints of a target vocabulary.

    A word to forbid is forbidden however it is capitalized. A word to require comes as it was typed; if its first
    letter is in lower case, it may also come as a capital, as at the start of a sentence. Both count as whole words:
    "car" is not in "careful".
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._automata: dict[tuple[Phrase, int], PhraseAutomaton] = {}

    def constraints(
        self, require: Sequence[str] = (), forbid: Sequence[str] = (), copied: Iterable[Sequence[int]] = ()
    ) -> Constraints | None:
        """Return the constraints that words come, do not come, and that some tokens are copied as they are."""
        for name, words in (("require", require), ("forbid", forbid)):
            if any(not word.strip() for word in words):
                raise InputError(f"a word to {name} is empty")
            if longest := max((word for word in words if len(word) > _LONGEST), default="", key=len):
                raise InputError(
                    f"a phrase to {name}, {longest[:20]!r}…, has {len(longest):,} characters; at most {_LONGEST} may be"
                )
        required = []
        for word, times in Counter(map(_normalized, require)).items():
            required.append(self._automaton(self._required(word), times))
            if required[-1].distance_S[0] >= UNREACHABLE:
                raise InputError(f"{word!r} has a word that the model does not know, and cannot write")
        size = self._tokenizer.vocab_size
        required += [token_phrase(size, tokens, times) for tokens, times in Counter(map(tuple, copied)).items()]
        forbidden = [self._automaton(_forbidden(word), 1) for word in forbid]
        return Constraints(required, forbidden) if required or forbidden else None

    def _required(self, word: str) -> Phrase:
        capital = word[0].upper() + word[1:]
        places = (_spellings({word[0], word[0].upper()}), *_places(word)[1:])
        splits = tuple(tuple(self._tokenizer.encode(form)) for form in dict.fromkeys((word, capital)))
        return Phrase(places, splits, spaced=True)

    def _automaton(self, phrase: Phrase, times: int) -> PhraseAutomaton:
        if (phrase, times) not in self._automata:
            if len(self._automata) >= _KEPT:
                del self._automata[next(iter(self._automata))]  # the oldest
            self._automata[phrase, times] = text_phrase(self._spelling, phrase, times)
        return self._automata[phrase, times]

    @cached_property
    def _spelling(self) -> Spelling:
        pieces = [self._tokenizer.spelled(number) for number in range(self._tokenizer.vocab_size)]
        symbols = [(_byte(piece),) if isinstance(piece, int) else _characters(piece) for piece in pieces]
        return Spelling(symbols, _joins, needs_space=_CLAUSE_ENDS.__contains__)


def _forbidden(word: str) -> Phrase:
    options = ({char, char.lower(), char.upper(), char.title()} for char in _normalized(word))
    return Phrase(tuple(map(_spellings, options)))


def _places(text: str) -> tuple[frozenset[Symbols], ...]:
    return tuple(_spellings({char}) for char in _normalized(text))


def _normalized(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def _spellings(options: set[str]) -> frozenset[Symbols]:
    """Return the symbols that may stand for a character: itself, or the bytes of its UTF-8; apostrophes are alike."""
    options = options | _APOSTROPHES if options & _APOSTROPHES else options
    return frozenset(spelled for text in options for spelled in (_characters(text), tuple(map(_byte, text.encode()))))


def _characters(text: str) -> Symbols:
    return tuple(map(ord, text))


def _byte(value: int) -> int:
    return value if value < 0x80 else _BYTE + value


def _joins(symbol: int) -> bool | None:
    """Whether a symbol is part of a word; None: as the one before it."""
    if symbol < _BYTE:
        char = chr(symbol)
        if unicodedata.combining(char):
            return None
        return char == "_" or (char.isalnum() and not is_unspaced(char))
    byte = symbol - _BYTE
    if byte < 0xC0:  # goes on with a character
        return None
    # By the first byte: Latin-1's signs, punctuation and symbols, scripts without spaces, emoji are no part of words.
    return not (byte == 0xC2 or 0xE2 <= byte <= 0xE9 or byte >= 0xEE)
