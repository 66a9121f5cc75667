"""A list of layers by depth in which each layer is registered once."""

import pytest
from torch import nn

from regard.layers import SharedLayers
from regard.layers.shared_layers import stacked


@pytest.fixture
def layers() -> list[nn.Module]:
    return [nn.Linear(2, 2) for _ in range(3)]


def test_it_is_a_list_by_depth(layers: list[nn.Module]) -> None:
    a, b, c = layers
    shared = SharedLayers([a, b, b, c, a])
    assert list(shared) == [a, b, b, c, a]
    assert (len(shared), shared[-1], list(shared[1:3])) == (5, a, [b, b])
    assert shared.order == (0, 1, 1, 2, 0)
    assert [name for name, _ in shared.named_modules()] == ["", "0", "1", "2"]
    with pytest.raises(IndexError):
        shared[5]


def test_it_can_be_changed_like_a_list(layers: list[nn.Module]) -> None:
    a, b, c = layers
    shared = SharedLayers([a, b, a])
    shared[2] = c  # and with it the first, which is the same layer
    assert list(shared) == [c, b, c]
    shared.append(a)
    shared.insert(0, b)
    assert list(shared) == [b, c, b, c, a]
    assert shared.pop(1) is c
    del shared[0]
    shared += [c, b]
    assert list(shared) == [b, c, a, c, b]
    assert len(list(shared.parameters())) == 6


def test_layers_that_differ_are_an_ordinary_list(layers: list[nn.Module]) -> None:
    assert type(stacked(layers)) is nn.ModuleList
    assert type(stacked([*layers, layers[0]])) is SharedLayers


def test_a_change_is_seen_by_who_holds_its_modules(layers: list[nn.Module]) -> None:
    a, b, c = layers
    shared = SharedLayers([a, b, a])
    modules = shared._modules
    shared[0] = c
    assert list(modules.values()) == [c, b]
    assert shared._modules is modules
