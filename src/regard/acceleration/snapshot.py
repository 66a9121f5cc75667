"""Whether a model has changed since its weights were packed."""

from ctypes import c_char
from itertools import chain
from operator import is_

from torch import nn
from torch.nn.modules import module as torch_modules

_CONTAINERS = (
    "_modules",
    "_parameters",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_FIRST = 64  # bytes of each parameter that are compared


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

    It is compared before every translation, so it keeps what it looks at in flat lists. What is changed through
    `parameter.data` shows in a parameter's first numbers, if all of them change; torch counts no version of it.
    """

    def __init__(self, model: nn.Module) -> None:
        self._modules = list(model.modules())
        self._contents = [vars(module) for module in self._modules]
        self._containers = [content[name] for content in self._contents for name in _CONTAINERS]
        self._settings = [
            (content, name)
            for content in self._contents
            for name, value in content.items()
            if isinstance(value, bool | int | float | str)
        ]
        self._parameters = list(model.parameters())
        self._first = [
            (c_char * min(_FIRST, parameter.nbytes)).from_address(parameter.data_ptr())
            for parameter in self._parameters
            if parameter.is_cpu and parameter.nbytes and type(parameter) is nn.Parameter
        ]
        self._objects, self._values = self._read_objects(), self._read_values()

    def is_current(self) -> bool:
        """Whether the model is still the same."""
        objects = self._read_objects()
        return (
            len(objects) == len(self._objects)
            and all(map(is_, objects, self._objects))
            and self._read_values() == self._values
        )

    def _read_objects(self) -> list[object]:
        return [*map(type, self._modules), *chain.from_iterable(map(dict.values, self._containers))]

    def _read_values(self) -> tuple[object, ...]:
        return (
            torch_modules._has_any_global_hook(),  # type: ignore[no-untyped-call]
            list(map(len, self._contents)),  # a `forward` of an instance's own is one more
            [content.get(name) for content, name in self._settings],
            [0 if parameter.is_inference() else parameter._version for parameter in self._parameters],
            [parameter.data_ptr() for parameter in self._parameters if type(parameter) is nn.Parameter],
            [first.raw for first in self._first],
        )
