"""Options in groups: one parameter of a verb that stands for several options."""

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from types import FunctionType
from typing import Any


def with_option_groups(verb: Callable[..., None]) -> Callable[..., None]:
    """Return the verb for typer, with the options of each group in place of the group.

    A group is a parameter annotated with a dataclass, or with `Annotated[T, function]` where the function returns the
    T. The parameters of the dataclass or the function are the options, each annotated as typer expects it.
    """
    groups: dict[str, Callable[..., Any]] = {}
    options: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(verb).parameters.items():
        group = _group(parameter.annotation)
        if group is None:
            options.append(parameter)
        else:
            groups[name] = group
            options += inspect.signature(group).parameters.values()

    @wraps(verb)
    def expanded(**values: Any) -> None:
        collected = {
            name: group(**{option: values.pop(option) for option in inspect.signature(group).parameters})
            for name, group in groups.items()
        }
        verb(**values, **collected)

    keyword_only = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]
    expanded.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
    return expanded


def _group(annotation: Any) -> Callable[..., Any] | None:
    """What builds the value of a group from its options; None for a parameter that is a single option."""
    if isinstance(annotation, type) and is_dataclass(annotation):
        return annotation
    return next((note for note in getattr(annotation, "__metadata__", ()) if isinstance(note, FunctionType)), None)
