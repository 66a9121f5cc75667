"""The search options of every verb that decodes: an option for each field of `SearchSettings`."""

import inspect
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from regard.decoding.settings import SearchSettings
from regard.errors import InputError

_OF_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed")  # these need --sample
_OF_BEAMS = ("beam", "groups", "early_stop")  # these do not go with it
_FLAGS = [name for name, field in SearchSettings.model_fields.items() if field.annotation is bool]
_ALIASES = {"early_stop": ("--full-stop",), "shortlist": ("--all-words",)}
"""Other names of the options that turn flags off, from earlier versions."""


def option_name(field: str) -> str:
    """Return the option of a field.

    >>> option_name("n_best")
    '--n-best'
    """
    return f"--{field.replace('_', '-')}"


def _collect(**values: Any) -> dict[str, Any]:
    """Return the fields of `SearchSettings` that were given; raise an `InputError` that names a wrong option."""
    for flag in _FLAGS:
        if values.pop(f"no_{flag}"):
            if values[flag]:
                raise InputError(f"{option_name(flag)} and its --no- form cannot be combined")
            values[flag] = False
    search = {name: value for name, value in values.items() if value is not None}
    for name, value in search.items():
        _check_value(name, value)
    _check_together(search)
    return search


SearchOptions = Annotated[dict[str, Any], _collect]
"""The parameter of a verb that takes search options: the fields of `SearchSettings` that were given."""


def _parameters() -> Iterator[inspect.Parameter]:
    for name, field in SearchSettings.model_fields.items():
        panel = "Sampling" if name in ("sample", *_OF_SAMPLING) else "Search"
        if name not in _FLAGS:
            option = typer.Option(help=field.description, rich_help_panel=panel)
            yield _parameter(name, field.annotation, option)
            continue
        # typer's --flag/--no-flag would take a column of its own in the help, a third of 80 characters.
        off = option_name(f"no_{name}")
        yield _parameter(
            name,
            bool,
            typer.Option(option_name(name), help=f"{field.description} Off: {off}.", rich_help_panel=panel),
        )
        yield _parameter(f"no_{name}", bool, typer.Option(off, *_ALIASES.get(name, ()), hidden=True))


def _parameter(name: str, annotation: Any, option: Any) -> inspect.Parameter:
    optional: Any = Annotated[annotation | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=optional, default=None)


_collect.__signature__ = inspect.Signature(list(_parameters()))  # type: ignore[attr-defined]


def _check_value(name: str, value: object) -> None:
    field = SearchSettings.model_fields[name]
    constrained: Any = Annotated[field.annotation, *field.metadata]
    try:
        TypeAdapter(constrained).validate_python(value)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise InputError(f"{option_name(name)} is {value}; {reason[0].lower()}{reason[1:]}") from None


def _check_together(search: dict[str, Any]) -> None:
    """Raise an `InputError` where search options do not go together."""
    for needed, names in (("sample", _OF_SAMPLING), ("groups", ("diversity",))):
        for name in names:
            if name in search and not search.get(needed):
                raise InputError(f"{option_name(name)} needs {option_name(needed)}")
    for name in _OF_BEAMS:
        if name in search and search.get("sample"):
            raise InputError(f"{option_name(name)} is for beam search; it does not go with --sample")
