"""Texts into sentences and back: the spaces between them are kept, and nothing is ever lost."""

import re
from collections.abc import Callable

Piece = tuple[str, str]
"""A part of a text, and the space that comes after it."""

# An end of a sentence, closing quotes and brackets with it; then a space, or nothing where a script has no spaces.
_END = re.compile(r"(?:(?<![.!?…])[.!?…]++[\"'”’»›“)\]]*+(?=\s)|[。！？｡]++[」』）]*+)\s*+|\n\s*+")
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
        if not before or _goes_on(before, text[match.end() : match.end() + 1]):
            continue
        sentence = text[start : match.end()].rstrip()
        pieces.append((sentence, text[start + len(sentence) : match.end()]))
        start = match.end()
    if start < len(text):
        rest = text[start:].rstrip()
        pieces.append((rest, text[start + len(rest) :]))
    return pieces


def _goes_on(sentence: str, following: str) -> bool:
    """Say whether what looks like an end is none: an abbreviation, or a word in lower case after it."""
    return bool(following and following.islower()) or _ABBREVIATION.search(sentence[-10:]) is not None


def fitting_pieces(text: str, fits: Callable[[str], bool]) -> list[Piece]:
    """Cut a text that does not fit in two, near its middle and where it hurts least, until all pieces fit.

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
