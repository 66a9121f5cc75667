"""The feed-forward network as one function in training, and when it is not one."""

import pytest
import torch
from torch import Tensor, nn

from regard import InputError, accelerate
from regard.acceleration.feed_forward import FusedFeedForward
from regard.acceleration.linear import Int8Linear
from regard.layers import FeedForward
from regard.ops.feed_forward import Activation


def fused(layer: FeedForward) -> FeedForward:
    layer.__class__ = FusedFeedForward
    return layer


def is_one(layer: FeedForward, x: Tensor) -> bool:
    return "ReluFeedForward" in type(layer(x).grad_fn).__name__


def output_and_gradients(layer: FeedForward, x: Tensor, grad: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    y = layer(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *layer.parameters()], grad)]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("int8", [True, False])
def test_in_training_it_is_what_its_parts_are(bias: bool, int8: bool) -> None:
    torch.manual_seed(1)
    layer = FeedForward(16, 48, bias=bias)
    if int8:
        layer.expand.__class__ = layer.contract.__class__ = Int8Linear
    x, grad = torch.randn(3, 5, 16), torch.randn(3, 5, 16)
    of_parts = output_and_gradients(layer, x, grad)
    as_one = output_and_gradients(fused(layer), x, grad)
    assert is_one(layer, x)
    for one, other in zip(as_one, of_parts, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_other_activations_are_those_of_the_plain_layer(activation: Activation) -> None:
    layer, x = FeedForward(8, activation=activation), torch.randn(2, 3, 8)
    expected = layer(x)
    assert fused(layer)(x).equal(expected)


def test_it_is_one_function_in_training_unless_more_is_asked_for() -> None:
    x = torch.randn(2, 3, 8, requires_grad=True)
    assert is_one(fused(FeedForward(8)), x)
    assert not is_one(fused(FeedForward(8)).eval(), x)
    assert not is_one(fused(FeedForward(8, activation="gelu")), x)
    assert not is_one(fused(FeedForward(8, dropout=0.1)), x)
    hooked = fused(FeedForward(8))
    hooked.expand.register_forward_hook(lambda *_: None)
    assert not is_one(hooked, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not is_one(fused(FeedForward(8)), x)
    with pytest.raises(InputError, match="a fused feed-forward network has no second derivatives"):
        torch.autograd.grad(fused(FeedForward(8))(x).square().sum(), x, create_graph=True)
    (first,) = torch.autograd.grad(fused(FeedForward(8)).eval()(x).square().sum(), x, create_graph=True)
    assert first.requires_grad


def test_global_hooks_are_called_for_its_parts() -> None:
    network, called = fused(FeedForward(8, 16)), list[str]()
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: called.append(type(module).__name__))
    try:
        network(torch.randn(1, 2, 8))
    finally:
        handle.remove()
    assert called == ["Linear", "Dropout", "Linear", "FusedFeedForward"]


def test_a_part_with_a_forward_of_its_own_is_computed_by_it() -> None:
    network, x = fused(FeedForward(8, 16)), torch.randn(1, 2, 8)
    network.expand.forward = lambda x: torch.zeros(*x.shape[:-1], 16)  # type: ignore[assignment, method-assign]
    assert network(x).equal(network.eval()(x))


def test_gradients_come_for_many_directions_at_once() -> None:
    network, x = fused(FeedForward(8, 16)), torch.randn(3, 8, requires_grad=True)
    y = network(x[None])[0]
    directions = torch.randn(5, *y.shape)
    together = torch.autograd.grad(y, x, directions, is_grads_batched=True, retain_graph=True)[0]
    alone = torch.stack([torch.autograd.grad(y, x, one, retain_graph=True)[0] for one in directions])
    torch.testing.assert_close(together, alone)


def test_it_compiles_whole_as_plain_layers() -> None:
    network, x = FeedForward(8), torch.randn(2, 3, 8)
    expected = network(x)
    accelerate(network)
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected)
