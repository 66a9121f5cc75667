"""Whether a model has changed since its weights were packed."""

from collections.abc import Mapping
from functools import cache
from itertools import chain
from operator import attrgetter, is_

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

from regard.acceleration.changed_classes import changed_classes, has_changed_forward

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_LEFT_BY_HOOKS = frozenset({"_is_full_backward_hook"})  # stays set when a backward hook is removed
_SETTINGS = (type(None), bool, int, float, str, tuple, list)


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

    It is compared before every translation, so it keeps what it compares in flat lists. Weights may change without a
    new version, by fused optimizers or through `parameter.data`: so a projection of each is compared, too.
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
            if name not in _LEFT_BY_HOOKS and isinstance(value, _SETTINGS)
        ]
        self._owners, self._names = [content for content, _ in settings], [name for _, name in settings]
        self._others = [
            (content, name)
            for content in [*self._contents, *_foreign_classes(self._modules)]
            for name, value in content.items()
            if not isinstance(value, (*_SETTINGS, dict))
        ]
        parameters = list(model.parameters())
        self._counted = [tensor for tensor in (*parameters, *model.buffers()) if not tensor.is_inference()]
        self._in_memory = [parameter for parameter in parameters if type(parameter) is nn.Parameter]
        self._has_global_hooks, self._changed_classes = _has_global_hooks(), changed_classes()
        self._has_changed_forward = has_changed_forward()
        self._objects, self._values, self._weights = self._read_objects(), self._read_values(), self._read_weights()

    def is_current(self, *, whole: bool = True) -> bool:
        """Whether the model is still the same; unless whole, whether global hooks and the forward passes are."""
        if _has_global_hooks() != self._has_global_hooks or has_changed_forward() != self._has_changed_forward:
            return False
        if not whole:
            return True
        if changed_classes() != self._changed_classes:
            return False
        objects = self._read_objects()
        return (
            len(objects) == len(self._objects)
            and all(map(is_, objects, self._objects))
            and self._read_values() == self._values
            and self._read_weights() == self._weights
        )

    def _read_objects(self) -> list[object]:
        return [
            *map(type, self._modules),
            *chain.from_iterable(map(dict.values, self._parts)),
            *chain.from_iterable(hooks.values() for hooks in self._hooks if hooks),
            *(content.get(name) for content, name in self._others),
        ]

    def _read_values(self) -> tuple[list[object], ...]:
        return (
            list(map(len, self._hooks)),
            list(map(len, self._contents)),  # a `forward` of an instance's own is one more
            [_copied(value) for value in map(dict.get, self._owners, self._names)],
            list(map(attrgetter("_version"), self._counted)),
            list(map(torch.Tensor.data_ptr, self._in_memory)),
        )

    def _read_weights(self) -> bytes:
        """Return a projection of each weight on random numbers, as bytes: what is not a number equals itself."""
        weights = [weight.detach() for weight in self._in_memory if weight.is_floating_point() and not weight.is_meta]
        projections = [_projected(weight.flatten()) for weight in weights]
        return torch.stack(projections).cpu().numpy().tobytes() if projections else b""


def _projected(weight: Tensor) -> Tensor:
    dtype = torch.promote_types(weight.dtype, torch.float32)
    size = 1 << (weight.numel() - 1).bit_length()
    return torch.dot(weight.to(dtype), _random_numbers(size, dtype, weight.device)[: weight.numel()])


@cache
def _random_numbers(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(0)).to(device, dtype)


def _foreign_classes(modules: list[nn.Module]) -> list[Mapping[str, object]]:
    """Return what classes that are neither torch's nor regard's hold: their methods."""
    classes = {cls for module in modules for cls in type(module).__mro__}
    return [vars(cls) for cls in classes if cls.__module__.partition(".")[0] not in ("torch", "regard", "builtins")]


def _copied(value: object) -> object:
    if isinstance(value, list):
        return tuple(value)
    return value if isinstance(value, _SETTINGS) else type(value)  # a tensor is not compared by ==


def _has_global_hooks() -> bool:
    return bool(torch_modules._has_any_global_hook())  # type: ignore[no-untyped-call]
