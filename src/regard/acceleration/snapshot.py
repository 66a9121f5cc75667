"""Whether a model has changed since its weights were packed."""

from itertools import chain
from operator import attrgetter, is_

import torch
from torch import nn
from torch.nn.modules import module as torch_modules

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Snapshot:
    """A model's modules, their settings and hooks, and its parameters, as they are now.

    >>> from torch import nn
    >>> layer = nn.Linear(2, 3)
    >>> before = Snapshot(layer)
    >>> before.is_current()
    True
    >>> nn.init.zeros_(layer.bias).sum().item()
    0.0
    >>> before.is_current()
    False

    It is compared before every translation, so it keeps what it compares in flat lists. torch counts no version of what
    is changed in place through `parameter.data`, so that is not noticed.
    """

    def __init__(self, model: nn.Module) -> None:
        self._modules = list(model.modules())
        self._contents = [vars(module) for module in self._modules]
        self._hooks = [content[name] for content in self._contents for name in _HOOKS]
        self._parts = [content[name] for content in self._contents for name in ("_modules", "_parameters")]
        settings = [
            (content, name)
            for content in self._contents
            for name, value in content.items()
            if isinstance(value, bool | int | float | str | tuple)
        ]
        self._owners, self._names = [content for content, _ in settings], [name for _, name in settings]
        parameters = list(model.parameters())
        self._counted = [parameter for parameter in parameters if not parameter.is_inference()]
        self._in_memory = [parameter for parameter in parameters if type(parameter) is nn.Parameter]
        self._has_global_hooks = _has_global_hooks()
        self._objects, self._values = self._read_objects(), self._read_values()

    def is_current(self, *, whole: bool = True) -> bool:
        """Whether the model is still the same; unless whole, whether global hooks are."""
        if _has_global_hooks() != self._has_global_hooks:
            return False
        if not whole:
            return True
        objects = self._read_objects()
        return (
            len(objects) == len(self._objects)
            and all(map(is_, objects, self._objects))
            and self._read_values() == self._values
        )

    def _read_objects(self) -> list[object]:
        return [*map(type, self._modules), *chain.from_iterable(map(dict.values, self._parts))]

    def _read_values(self) -> tuple[list[object], ...]:
        return (
            list(map(bool, self._hooks)),
            list(map(len, self._contents)),  # a `forward` of an instance's own is one more
            list(map(dict.get, self._owners, self._names)),
            list(map(attrgetter("_version"), self._counted)),
            list(map(torch.Tensor.data_ptr, self._in_memory)),
        )


def _has_global_hooks() -> bool:
    return bool(torch_modules._has_any_global_hook())  # type: ignore[no-untyped-call]
