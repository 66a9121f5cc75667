"""Lossless sentence splitting: the pieces keep the spaces between them."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

Piece = tuple[str, str]
"""A part of a text, and the space that comes after it."""

_BREAK = "[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"
_MARKUP = r"</?\w[^<>]{0,200}>"
# An end of a sentence, closing quotes and brackets with it; then a space or markup, or nothing where a script has no
# spaces; or an end of a line.
_END = re.compile(
    rf"(?:(?<![.!?…])[.!?…]++[\"'”’»›“)\]]*+(?=\s|{_MARKUP})|[。！？｡]++[」』）]*+)\s*+|(?P<line>{_BREAK}\s*+)"
)
_MARKUP_HERE = re.compile(_MARKUP)
# Thai, Lao, Burmese, Khmer, kana and the characters of Chinese: words are written without spaces between them.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_CODE_SIGNS = frozenset("<>=|\\")  # rare in sentences, whatever a vocabulary has
# Runs without a space that are no text: too long for a word, or too long for a list of words with commas between them.
_NO_WORD = re.compile(
    rf"(?<![^\s{_UNSPACED}])[^\s{_UNSPACED}]{{1001,}}+|(?<![^\s,;.!?…{_UNSPACED}])[^\s,;.!?…{_UNSPACED}]{{121,}}+"
)
_OPAQUE = re.compile(rf"{_MARKUP}|{_NO_WORD.pattern}")
_KEPT = "\U0010fffd"
_UNSPACED_CHARACTER = re.compile(f"[{_UNSPACED}]")
_FILLERS = dict.fromkeys((0x115F, 0x1160, 0x3164, 0xFFA0), " ")  # of Hangul: letters that show as spaces
_INVISIBLE = {
    0x200B: " ",
    **dict.fromkeys(map(ord, "\u00ad\u2060\ufeff")),
}  # a space of no width; soft hyphens, joiners
_LIGATURES = {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}  # ﬀ to ﬆ
_PLAIN = _INVISIBLE | _LIGATURES | _FILLERS
_ACCENTED = re.compile(r"[^\W\d_][\u0300-\u036f]+")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:[^\W\d_]|\d{1,3}|Mr|Mrs|Ms|Dr|Prof|St|No|Nr|vs|etc|e\.g|i\.e|ca|bzw|usw|Hr|Fr|Str|z\.\s?B|d\.\s?h|u\.\s?a)\.$",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[,;:–—、，；：]+\s*")
_SPACE = re.compile(r"\s+")


def split_sentences(text: str) -> list[Piece]:
    """Cut a text after each sentence.

    >>> split_sentences("Dr. Smith came. He sat down.  Why?")
    [('Dr. Smith came.', ' '), ('He sat down.', '  '), ('Why?', '')]

    Put together again, the pieces and their spaces are the text.
    """
    pieces: list[Piece] = []
    start = len(text) - len(text.lstrip())
    if start:
        pieces.append(("", text[:start]))
    for match in _END.finditer(text, start):
        before = text[max(start, match.start() - 20) : match.end()].rstrip()
        if not before or (not match["line"] and _goes_on(before, text[match.end() : match.end() + 1])):
            continue
        sentence = text[start : match.end()].rstrip()
        pieces.append((sentence, text[start + len(sentence) : match.end()]))
        start = match.end()
    if start < len(text):
        rest = text[start:].rstrip()
        pieces.append((rest, text[start + len(rest) :]))
    return pieces


def _goes_on(sentence: str, following: str) -> bool:
    """Whether an apparent sentence end is not one: an abbreviation, or a word in lower case after it."""
    return bool(following and following.islower()) or _ABBREVIATION.search(sentence[-10:]) is not None


def split_opaque(sentence: str, alphabet: Iterable[str] | None = None) -> list[Piece]:
    """Split off what is not to be translated: markup, and runs that are too long to be words.

    >>> split_opaque("</s> Why? <br>")
    [('</s>', ' '), ('Why?', ' '), ('<br>', '')]
    >>> split_opaque("• one ★ <b>two</b>", alphabet="onetw ")
    [('•', ' '), ('one', ' '), ('★', ' '), ('<b>', ''), ('two', ''), ('</b>', '')]

    With an alphabet, signs that are not in it are split off, too: bullets, arrows, emoji; and those of code, such as
    "=". `is_opaque` tells the pieces that are to be copied whatever they are made of.
    """
    markup = [match.span() for match in _MARKUP_HERE.finditer(sentence)]
    spans, start = list(markup), 0
    for first, last in (*markup, (len(sentence), len(sentence))):
        spans += [(start + match.start(), start + match.end()) for match in _NO_WORD.finditer(sentence[start:first])]
        start = last
    if alphabet is not None:
        spans += _unknown_signs(sentence, alphabet, spans)
    pieces: list[Piece] = []
    done = 0
    for first, last in (*sorted(spans), (len(sentence), len(sentence))):
        _append(pieces, sentence[done:first])
        _append(pieces, sentence[first:last])
        done = last
    return pieces


def _unknown_signs(sentence: str, alphabet: Iterable[str], taken: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the runs of characters that are neither in the alphabet nor letters, digits or spaces."""
    strange = set(sentence).difference(alphabet) | _CODE_SIGNS.intersection(sentence)
    unknown = {char for char in strange if not char.isalnum() and not char.isspace() and ord(char) not in _INVISIBLE}
    if not unknown:
        return []
    spans: list[tuple[int, int]] = []
    for place, char in enumerate(sentence):
        if char not in unknown or any(first <= place < last for first, last in taken):
            continue
        if spans and spans[-1][1] == place:
            spans[-1] = spans[-1][0], place + 1
        else:
            spans.append((place, place + 1))
    return spans


def _append(pieces: list[Piece], part: str) -> None:
    """Add a part of a text to its pieces; the space before it belongs to the piece before it."""
    bare = part.strip()
    before, _, after = part.partition(bare) if bare else (part, "", "")
    if pieces:
        pieces[-1] = pieces[-1][0], pieces[-1][1] + before
    if bare:
        pieces.append((bare, after))


def around_opaque(text: str, change: Callable[[str], str]) -> str:
    """Return a text with a change made to all but its markup, and runs that are too long to be words.

    >>> around_opaque("<b>why?</b>", str.upper)
    '<b>WHY?</b>'

    What is left out is one character for private use meanwhile.
    """
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[0])
        return _KEPT

    if _KEPT in text:
        return change(text)
    found = change(_OPAQUE.sub(keep, text))
    rest = iter(kept)
    return re.sub(_KEPT, lambda _: next(rest), found)


def is_opaque(piece: str) -> bool:
    """Whether a piece is to be copied: markup, or a run that is too long to be a word."""
    return _MARKUP_HERE.fullmatch(piece) is not None or _NO_WORD.fullmatch(piece) is not None


def is_unspaced(char: str) -> bool:
    """Whether a character is of a script that has no spaces between words."""
    return _UNSPACED_CHARACTER.match(char) is not None


def with_plain_spaces(text: str) -> str:
    """Return a text as corpora have it: single spaces for white space of any kind, nothing invisible.

    >>> with_plain_spaces("a\\u00a0b\\tc")
    'a b c'
    """
    return " ".join(composed(text).translate(_PLAIN).split())


def composed(text: str) -> str:
    """Return a text with each letter and its accents as one character, where there is one; all else stays as it is.

    >>> composed("mu\\u0308de") == "müde"
    True
    """
    return text if text.isascii() else _ACCENTED.sub(lambda match: unicodedata.normalize("NFC", match[0]), text)


def fitting_pieces(text: str, fits: Callable[[str], bool]) -> list[Piece]:
    """Cut a text that does not fit in two, at the best boundary near its middle, until all pieces fit.

    >>> fitting_pieces("one, two three", lambda piece: len(piece) < 10)
    [('one,', ' '), ('two three', '')]
    """
    if len(text) <= 1 or fits(text):
        return [(text, "")]
    middle = len(text) // 2
    for pattern in (_CLAUSE, _SPACE):
        places = [match.end() for match in pattern.finditer(text) if 0 < match.end() < len(text)]
        if places:
            at = min(places, key=lambda place: abs(place - middle))
            break
    else:
        at = middle
    first, second = text[:at], text[at:]
    bare = first.rstrip()
    *before, (last, gap) = fitting_pieces(bare, fits) if bare else [("", "")]
    return [*before, (last, gap + first[len(bare) :]), *fitting_pieces(second, fits)]
