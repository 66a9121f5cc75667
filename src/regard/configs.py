"""Configurations are data: frozen, checked when made, unknown keys refused with the nearest known one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import ErrorDetails

from regard.errors import ConfigError, InputError

_nested: ContextVar[bool] = ContextVar("_nested", default=False)
"""Whether a configuration is validated as a part of another, which knows the key that it is under."""


class Config(BaseModel):
    """Base class of all configurations. Validation errors become a one-sentence `ConfigError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    suggestions: ClassVar[Mapping[str, str]] = {}
    """Keys of other libraries, mapped to the field here or to a hint."""

    @model_validator(mode="wrap")
    @classmethod
    def _in_one_sentence(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        outermost = not _nested.get()
        try:
            with _nesting(True):
                made = handler(data)
            with _nesting(False):  # what is made in there stands by itself
                made.check()
        except ValidationError as error:
            problems = _problems(cls, error)
            if outermost:
                raise ConfigError("; ".join(map(str, problems))) from None
            raise _PartError(problems) from None
        except InputError as error:
            if outermost:
                raise ConfigError(str(error)) from None
            raise
        return made

    def check(self) -> None:
        """Raise an `InputError` where fields do not fit together."""


@contextmanager
def _nesting(nested: bool) -> Iterator[None]:
    token = _nested.set(nested)
    try:
        yield
    finally:
        _nested.reset(token)


@dataclass(frozen=True)
class _Problem:
    """What is wrong with the value of a key."""

    keys: tuple[int | str, ...]
    text: str

    def __str__(self) -> str:
        return f"{_short('.'.join(map(str, self.keys))) or 'all of it'} {self.text}"


class _PartError(ValueError):
    """What is wrong with a part of a configuration, on the way to where its key is known."""

    def __init__(self, problems: list[_Problem]) -> None:
        super().__init__()
        self.problems = problems


def _problems(cls: type[Config], error: ValidationError) -> list[_Problem]:
    details = error.errors()
    # A list is called too short when its only entry is wrong: the entry is what to report.
    places = [detail["loc"] for detail in details]
    inner = [
        detail
        for detail in details
        if not any(len(place) > len(detail["loc"]) and place[: len(detail["loc"])] == detail["loc"] for place in places)
    ]
    return list(dict.fromkeys(problem for detail in inner for problem in _problems_of(cls, detail)))


def _problems_of(cls: type[Config], detail: ErrorDetails) -> list[_Problem]:
    keys = tuple(key for key in detail["loc"] if not _is_branch(key))
    match detail["type"]:
        case "extra_forbidden":
            return [_Problem(keys, f"is not a known key{_suggestion(cls, str(keys[-1]))}")]
        case "missing":
            return [_Problem(keys, "is missing")]
        case "union_tag_not_found":
            return [_Problem(keys, "has no kind")]
        case "union_tag_invalid":
            kinds = str(detail["ctx"]["expected_tags"]).replace("'", "")
            return [_Problem((*keys, "kind"), f"is {detail['ctx']['tag']!r}; it is one of {kinds}")]
        case "tuple_type" | "list_type":
            return [_Problem(keys, f"is {_short(repr(detail['input']))}; a list was expected")]
        case "too_short":
            return [_Problem(keys, "is empty")]
        case "model_type":
            return [_Problem(keys, f"is {_short(repr(detail['input']))}; keys with values were expected")]
        case "value_error":
            error = detail["ctx"]["error"]
            if len(keys) > 1 and isinstance(keys[-2], int):
                keys = keys[:-1]  # pydantic names the kind of an entry behind its number
            if isinstance(error, _PartError):
                return [_Problem((*keys, *problem.keys), problem.text) for problem in error.problems]
            if isinstance(error, InputError):
                return [_Problem((*keys[:-1], f"{keys[-1]}:"), str(error))]
    return [_Problem(keys, f"is {_short(repr(detail['input']))}; {_in_lower_case(detail['msg'])}")]


def _in_lower_case(message: str) -> str:
    message = message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _is_branch(key: int | str) -> bool:
    """Whether an entry of a place is pydantic's name of a type among several, such as `tuple[path, ...]`."""
    return isinstance(key, str) and "[" in key


def _suggestion(cls: type[Config], key: str) -> str:
    known = cls.suggestions.get(key, "")
    if known and known not in cls.model_fields:
        return f"; {known}"
    parts = [name for name in cls.model_fields if key in name.split("_")]
    near = [known] if known else parts or get_close_matches(key, cls.model_fields, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]} … ({len(text):,} characters)"
