"""Texts as callers give them, and as lines of output."""

from collections.abc import Iterable

from regard.errors import InputError

_BREAKS = dict.fromkeys(map(ord, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " ")


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


def on_one_line(text: str) -> str:
    """Replace line breaks by spaces: a text of one line becomes one line."""
    return text.translate(_BREAKS)
