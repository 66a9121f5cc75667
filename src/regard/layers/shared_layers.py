"""Layers that are applied several times, each time in another depth of a stack (shared parameters)."""

from collections.abc import Iterable, Iterator
from typing import Any, Self

from torch import nn


class SharedLayers(nn.ModuleList):
    """The layers of a stack, by depth, where some of them are the same.

    >>> first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    >>> layers = SharedLayers([first, second, second, first])
    >>> len(layers), layers[3] is first
    (4, True)
    >>> [name for name, _ in layers.named_parameters()]
    ['0.weight', '0.bias', '1.weight', '1.bias']

    Its length, indexing and iteration are those of the whole stack. Each is registered once, so that
    every parameter has one name, and `torch.func.functional_call` gives every module its parameters back.
    """

    order: tuple[int, ...]
    """Which of the registered layers each depth applies."""

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self._register(layers)

    def _register(self, layers: Iterable[nn.Module]) -> None:
        by_depth = list(layers)
        numbers = {layer: number for number, layer in enumerate(dict.fromkeys(by_depth))}
        self._modules.clear()  # the same dict: `Snapshot` compares what it holds
        self._modules.update({str(number): layer for layer, number in numbers.items()})
        self.order = tuple(numbers[layer] for layer in by_depth)

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[nn.Module]:
        return iter([self[depth] for depth in range(len(self))])

    def __getitem__(self, depth: int | slice) -> Any:
        if isinstance(depth, slice):
            return nn.ModuleList(list(self)[depth])
        return self._modules[str(self.order[depth])]

    def __setitem__(self, depth: int, layer: nn.Module) -> None:
        """Replace the layer of a depth, and with it those of all depths that share it."""
        before = self[depth]
        self._register(layer if one is before else one for one in self)

    def __delitem__(self, depth: int | slice) -> None:
        by_depth = list(self)
        del by_depth[depth]
        self._register(by_depth)

    def insert(self, index: int, module: nn.Module) -> None:
        """Insert a layer before a depth."""
        by_depth = list(self)
        by_depth.insert(index, module)
        self._register(by_depth)

    def extend(self, modules: Iterable[nn.Module]) -> Self:
        """Append layers."""
        self._register([*self, *modules])
        return self

    def append(self, module: nn.Module) -> Self:
        """Append a layer."""
        return self.extend([module])


def stacked(layers: Iterable[nn.Module]) -> nn.ModuleList:
    """Return the layers of a stack as a module."""
    by_depth = list(layers)
    return nn.ModuleList(by_depth) if len(set(by_depth)) == len(by_depth) else SharedLayers(by_depth)
