"""What a corpus is made of: examples, which are fields with their values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Example = Mapping[str, Any]
"""The values of fields by their names: texts, and a list of `Answer` for the field `answers`."""


@dataclass(frozen=True)
class Answer:
    """An answer to a question, and where it starts in the context, counted in characters, if that is known."""

    text: str
    start: int | None = None


class FieldError(ValueError):
    """What is wrong with the value of a field, to go behind the place where it was found."""


def field_value(field: str, value: object) -> Any:
    """Return the value that a field of an example has for one that was read from a file.

    >>> field_value("text", "as it is"), field_value("label", 3)
    ('as it is', '3')
    >>> field_value("answers", ["garden", "the garden"])
    [Answer(text='garden', start=None), Answer(text='the garden', start=None)]

    Labels may be integers. Answers are a text, a list of texts, a list of objects as in SQuAD, with `text` and
    `answer_start`, or an object with a list of each; an empty text is no answer.
    """
    if field == "answers":
        return _answers(value)
    if field == "label" and isinstance(value, int):
        return str(value)
    return checked_text(value)


def from_texts(texts: dict[str, str]) -> Example:
    """Return the example whose fields were read as these texts."""
    if "answers" in texts:
        return {**texts, "answers": field_value("answers", texts["answers"])}
    return texts


def checked_text(value: object) -> str:
    """Return a value that is text, all of which can be written in UTF-8."""
    if not isinstance(value, str):
        raise FieldError(f"is {type(value).__name__}, not text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise FieldError("has half a character (a lone surrogate)") from None
    return value


def _answers(value: object) -> list[Answer]:
    match value:
        case str():
            return [Answer(checked_text(value))] if value else []
        case {"text": list(texts), "answer_start": list(starts)} if len(texts) == len(starts):
            return [answer_at(text, start) for text, start in zip(texts, starts, strict=True)]
        case list():
            return [answer for entry in value if (answer := _answer(entry)).text]
    raise FieldError(f"is {type(value).__name__}, not an answer or a list of answers")


def _answer(value: object) -> Answer:
    match value:
        case {"text": text, "answer_start": start}:
            return answer_at(text, start)
        case {"text": text}:
            return Answer(checked_text(text))
    return Answer(checked_text(value))


def answer_at(text: object, start: object) -> Answer:
    """Return an answer from its text and the number of the character at which it starts."""
    if not isinstance(start, int) or isinstance(start, bool) or start < 0:
        raise FieldError(f"has an answer_start of {start!r}, which is not the number of a character")
    return Answer(checked_text(text), start)
