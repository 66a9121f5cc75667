"""How translations are written out: as text, as a table, as JSON lines."""

import json
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.tasks.translation import Translation


class Format(StrEnum):
    """What a line of output holds."""

    text = "text"
    """The translation."""
    tsv = "tsv"
    """The source, a translation, its score; a line for each translation."""
    jsonl = "jsonl"
    """An object with all that is known."""


def written(source: str, made: "Translation", form: Format) -> str:
    """Write what became of a line, with a line feed at the end."""
    if form == Format.text:
        return f"{made.text}\n"
    if form == Format.tsv:
        kept = [made, *made.alternatives]
        return "".join(f"{_cell(source)}\t{_cell(one.text)}\t{one.score:.4f}\n" for one in kept)
    line = json.dumps({"source": source, **_content(made)}, ensure_ascii=False)
    return line.translate(_ESCAPES) + "\n"


# What some readers take for the end of a line, and JSON lets stand.
_ESCAPES = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}


def _cell(text: str) -> str:
    return " ".join(text.replace("\t", " ").splitlines())


def _content(made: "Translation") -> dict[str, object]:
    content: dict[str, object] = {"text": made.text, "score": round(made.score, 6), "tokens": made.tokens}
    if made.cut:
        content["cut"] = True
    if made.untranslated:
        content["untranslated"] = made.untranslated
    if made.alignment is not None:
        content["source_tokens"], content["alignment"] = made.source_tokens, made.alignment
    if made.alternatives:
        content["alternatives"] = [_content(one) for one in made.alternatives]
    return content
