"""Dropout by a kernel: the elements that plain dropout drops, from the same random bits."""

from contextlib import nullcontext

import pytest
import torch

from regard.acceleration.dropout import KernelDropout, kernel_dropout
from regard.kernels.bindings import kernels
from regard.layers import Dropout
from regard.ops import dropout
from regard.ops.rng import keyed_dropout

pytestmark = pytest.mark.skipif(kernels() is None, reason="the kernels were not built: there was no compiler")


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.9])
@pytest.mark.parametrize("shape", [(6, 5, 8), (6, 5, 7), (6, 3), (6, 50, 300), (1, 100_003)])
@pytest.mark.parametrize("with_keys", [True, False])
def test_the_kernel_drops_what_plain_dropout_drops_bit_for_bit(
    rate: float, shape: tuple[int, ...], with_keys: bool
) -> None:
    x = torch.randn(shape)

    def dropped(layer: Dropout) -> tuple[torch.Tensor, torch.Tensor]:
        leaf = x.clone().requires_grad_()
        torch.manual_seed(5)
        with keyed_dropout(torch.arange(shape[0])) if with_keys else nullcontext():
            y = layer(leaf)
        (gradient,) = torch.autograd.grad((y * y.detach()).sum(), leaf)
        return y, gradient

    kernel, plain = KernelDropout(rate), Dropout(rate)
    (y, gradient), (expected, expected_gradient) = dropped(kernel), dropped(plain)
    assert "Drop" in type(y.grad_fn).__name__
    assert ((y == 0) == (expected == 0)).all()
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(gradient, expected_gradient)
    assert kernel.eval()(x) is x


@pytest.mark.parametrize("rate", [0.0, 0.004, 0.5])
def test_what_is_not_for_the_kernel_is_plain_dropout(rate: float) -> None:
    x = torch.randn(4, 8)
    for given in (x, x.T, x.double(), x[:0]):
        torch.manual_seed(5)
        expected = dropout(given, rate)
        torch.manual_seed(5)
        assert kernel_dropout(given, rate).equal(expected)


def test_the_gradient_by_the_kernel_has_a_gradient_and_takes_many_directions() -> None:
    x = torch.randn(4, 8, requires_grad=True)
    y = kernel_dropout(x, 0.5)
    (gradient,) = torch.autograd.grad(y.pow(2).sum(), x, create_graph=True)
    torch.testing.assert_close(gradient, 2 * torch.where(y == 0, 0.0, 2.0) * y)
    (second,) = torch.autograd.grad(gradient.sum(), x, retain_graph=True)
    torch.testing.assert_close(second, torch.where(y == 0, 0.0, 8.0))
    directions = torch.randn(3, *y.shape)
    (many,) = torch.autograd.grad(y, x, directions, is_grads_batched=True, retain_graph=True)
    torch.testing.assert_close(many, directions * torch.where(y == 0, 0.0, 2.0))
    (columns,) = torch.autograd.grad(y, x, directions[0].T.contiguous().T)
    torch.testing.assert_close(columns, many[0])


def test_signs_of_lazily_negated_gradients() -> None:
    x = torch.randn(4, 8, requires_grad=True)
    y = kernel_dropout(x, 0.5)
    (gradient,) = torch.autograd.grad(y, x, torch._neg_view(torch.ones(4, 8)))
    torch.testing.assert_close(gradient, torch.where(y == 0, 0.0, -2.0))
