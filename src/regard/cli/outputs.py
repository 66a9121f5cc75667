"""How results are written out: as text, as a table, as JSON lines."""

import json
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Protocol

from regard.inference.texts import on_one_line


class Format(StrEnum):
    """What a line of output holds."""

    text = "text"
    """The text of the result."""
    tsv = "tsv"
    """The source, a text, its score; a line for each alternative."""
    jsonl = "jsonl"
    """An object with all that is known."""


class Result(Protocol):
    """What became of a line, such as a translation."""

    @property
    def text(self) -> str:
        """The result in words."""

    @property
    def score(self) -> float:
        """How good the model takes it for."""

    @property
    def alternatives(self) -> Sequence["Result"]:
        """The next best, where more than one was asked for."""

    def content(self) -> dict[str, Any]:
        """Return all that is known of it, for JSON."""

    def warnings(self) -> Iterable[str]:
        """Return what may be wrong with it, a sentence each."""


class Blank:
    """What becomes of a blank line where there is nothing to do with it; JSON has the fields of other lines."""

    text = ""
    score = 0.0
    alternatives: Sequence[Result] = ()

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = fields

    def content(self) -> dict[str, Any]:
        """Return an empty text, and nothing in the other fields."""
        return {name: "" if name == "text" else None for name in self._fields}

    def warnings(self) -> Iterable[str]:
        """Return nothing."""
        return ()


def written(source: str, result: Result, form: Format) -> str:
    """Write what became of a line, with a line feed at the end."""
    if form == Format.text:
        return f"{on_one_line(result.text)}\n"
    if form == Format.tsv:
        kept = [result, *result.alternatives]
        return "".join(f"{_cell(source)}\t{_cell(one.text)}\t{one.score:.4f}\n" for one in kept)
    return json_line({"source": source, **result.content()}) + "\n"


def json_line(content: dict[str, Any]) -> str:
    """Return an object as a line of JSON. Escaped is what is no text, and what some readers take for a line's end."""
    line = json.dumps(content, ensure_ascii=False)
    if not line.isascii() and any("\ud800" <= sign <= "\udfff" for sign in line):  # half of a surrogate pair
        line = json.dumps(content)
    return line.translate(_ESCAPES)


# What some readers take for the end of a line, and JSON lets stand.
_ESCAPES = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}


def _cell(text: str) -> str:
    return " ".join(text.replace("\t", " ").splitlines())
