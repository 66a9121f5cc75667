"""Whether the code that kernels stand for was replaced since it was imported: methods of classes, and functions."""

import sys
from collections.abc import Mapping
from operator import itemgetter
from types import FunctionType
from typing import Any, NamedTuple

from torch import nn

from regard.acceleration.known_classes import KERNEL_PARTS, KNOWN


class _Namespace(NamedTuple):
    """A class, a module or a dict of functions, with what it held when it was imported."""

    name: str
    known: type | None
    """A class that is known, or a base of one; of anything else, a change concerns all of them."""
    content: Mapping[str, Any]
    before: dict[str, Any]

    def changes(self) -> list[str]:
        """Return the names that hold something else now, and those that a class was given since."""
        changed = [name for name, value in self.before.items() if self.content.get(name) is not value]
        if self.known is None:
            return changed
        added = [name for name in self.content.keys() - self.before.keys() if not _is_pythons(name, self.content[name])]
        return changed + added


def _is_pythons(name: str, value: object) -> bool:
    """Whether an entry of a class is kept there by Python itself, `__slotnames__` for instance."""
    return name.startswith("__") and not callable(value)


def _is_ours(value: object) -> bool:
    """Whether a value is a function of regard's."""
    return isinstance(value, FunctionType) and value.__module__.startswith("regard.")


def _watched() -> list[_Namespace]:
    """Return the namespaces of everything that kernels stand for."""
    modules = {name: module for name, module in sys.modules.items() if name.startswith(("regard.layers", "regard.ops"))}
    found = [
        _Namespace(name, None, vars(module), {key: value for key, value in vars(module).items() if _is_ours(value)})
        for name, module in modules.items()
    ]
    for name, module in modules.items():
        for key, value in vars(module).items():
            if type(value) is dict and value and all(map(callable, value.values())):
                found.append(_Namespace(f"{name}.{key}", None, value, dict(value)))
    known = {base for cls in KNOWN | KERNEL_PARTS for base in cls.__mro__ if base not in (nn.Module, object)}
    defined = {value for module in modules.values() for value in vars(module).values() if isinstance(value, type)}
    helpers = {cls for cls in defined if cls.__module__ in modules and not issubclass(cls, nn.Module)}
    for cls in known | helpers:
        content = {key: value for key, value in vars(cls).items() if not _is_pythons(key, value)}
        found.append(_Namespace(class_name(cls), cls if cls in known else None, vars(cls), content))
    calls = {key: vars(nn.Module)[key] for key in ("__call__", "_wrapped_call_impl", "_call_impl", "__getattr__")}
    found.append(_Namespace(class_name(nn.Module), None, vars(nn.Module), calls))
    return [namespace for namespace in found if namespace.before]


def class_name(cls: type) -> str:
    """Return the whole name of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


_WATCHED = _watched()
_READERS = [(itemgetter(*namespace.before), namespace.content) for namespace in _WATCHED]
_BEFORE = [read(content) for read, content in _READERS]
_CLASSES = [namespace.content for namespace in _WATCHED if namespace.known is not None]
_SIZES = list(map(len, _CLASSES))


_STEPS = ("forward", "encode", "decode", "logits", "attend", "heads", "project_query", "project_key_value")
_STEPS_OF_PARTS = ("rotate", "turns", "bias", "allowed")
_FORWARDS = [
    (content, name, content[name])
    for content in map(vars, KNOWN | KERNEL_PARTS)
    for name in _STEPS + _STEPS_OF_PARTS
    if name in content
]


def has_changed_forward() -> bool:
    """Whether a forward pass was replaced, or a function in one: all of `changed_classes` takes 5 % of a sentence."""
    return has_changed_functions() or any(content.get(name) is not value for content, name, value in _FORWARDS)


_IN_EVERY_PASS = frozenset(
    f"regard.{name}"
    for name in ("layers.attention", "layers.softmax_attention", "layers.norms", "layers.residual", "layers.dropout")
) | {"regard.ops.attention", "regard.ops.dropout", "regard.ops.normalization"}
_FUNCTIONS = [
    (itemgetter(*namespace.before), namespace.content, itemgetter(*namespace.before)(namespace.before))
    for namespace in _WATCHED
    if namespace.name in _IN_EVERY_PASS
]


def has_changed_functions() -> bool:
    """Whether a function of attention, norms, residuals or dropout was replaced: for use in every forward pass."""
    try:
        return any(read(content) != before for read, content, before in _FUNCTIONS)
    except KeyError:
        return True


_PLAIN_METHODS = {
    (cls, name): getattr(cls, name) for cls in KNOWN for name in ("forward", "heads") if hasattr(cls, name)
}


def has_plain_method(cls: type[nn.Module], name: str) -> bool:
    """Whether a known class has the `forward` or the `heads` that it was imported with."""
    return getattr(cls, name) is _PLAIN_METHODS[cls, name]


def changed_classes() -> set[type[nn.Module]]:
    """Return the known classes that compute something else than when they were imported.

    They, or bases of theirs, were given other methods. Where a function was replaced that they call, or the methods of
    what they use, it is all of them.
    """
    return set() if _is_as_imported() else changes()[0]


def _is_as_imported() -> bool:
    """Whether nothing was replaced; of classes that were given something, `changes` tells."""
    try:
        return [read(content) for read, content in _READERS] == _BEFORE and list(map(len, _CLASSES)) == _SIZES
    except KeyError:
        return False


def changes() -> tuple[set[type[nn.Module]], str | None]:
    """Return the known classes that were changed, and the name of what was replaced where it is all of them."""
    every = set(KNOWN | KERNEL_PARTS)
    changed: set[type[nn.Module]] = set()
    for namespace in _WATCHED:
        names = namespace.changes()
        if names and namespace.known is None:
            return every, f"{namespace.name}.{names[0]}"
        if names:
            changed |= {cls for cls in every if namespace.known is not None and issubclass(cls, namespace.known)}
    if not changed:
        _SIZES[:] = map(len, _CLASSES)
    return changed, None
