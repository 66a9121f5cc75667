"""Configurations are data: frozen, checked when made, unknown keys refused with the nearest known one."""

from difflib import get_close_matches
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import ErrorDetails

from regard.errors import ConfigError, InputError


class Config(BaseModel):
    """The base of every configuration. What is wrong with one is said in a sentence, as a `ConfigError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="wrap")
    @classmethod
    def _in_one_sentence(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            made = handler(data)
            made.check()
        except ValidationError as error:
            problems = "; ".join(_sentence(cls, detail) for detail in error.errors())
            raise ConfigError(f"{cls.__name__}: {problems}") from None
        except InputError as error:
            raise ConfigError(f"{cls.__name__}: {error}") from None
        return made

    def check(self) -> None:
        """Raise an `InputError` where fields do not fit together."""


def _sentence(cls: type[BaseModel], detail: ErrorDetails) -> str:
    key = _short(".".join(str(part) for part in detail["loc"])) or "all of it"
    match detail["type"]:
        case "extra_forbidden":
            near = get_close_matches(key, cls.model_fields, n=1)
            return f"{key} is not a key it knows" + (f"; did you mean {near[0]}?" if near else "")
        case "missing":
            return f"{key} is missing"
    return f"{key} is {_short(repr(detail['input']))}; {detail['msg'][0].lower()}{detail['msg'][1:]}"


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]} … ({len(text):,} characters)"
