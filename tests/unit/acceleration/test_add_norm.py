"""Dropout, residual connection and norm in one pass, against the three one by one in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import forward_ad

from regard.acceleration.add_norm import add_and_norm
from regard.errors import InputError
from regard.ops import dropout, layer_norm
from regard.ops.rng import keyed_dropout
from tests.unit.acceleration.problems import needs_kernels


def in_float64(x: Tensor, y: Tensor, gamma: Tensor, beta: Tensor, rate: float, keys: Tensor) -> Tensor:
    with keyed_dropout(keys):
        return layer_norm(x + dropout(y, rate), gamma, beta)


@given(
    st.tuples(st.integers(1, 5), st.integers(1, 40), st.sampled_from([8, 24, 128, 5])),
    st.sampled_from([0.0, 0.1, 0.5, 0.001]),
    st.sampled_from([1e-3, 1.0, 1e3]),
    st.integers(0, 2**31),
)
def test_it_is_dropout_addition_and_norm(shape: tuple[int, int, int], rate: float, size: float, seed: int) -> None:
    torch.manual_seed(seed)
    B, T, D = shape
    x, y, grad = (size * torch.randn(B, T, D) for _ in range(3))
    given = [tensor.requires_grad_() for tensor in (x, y, torch.randn(D), torch.randn(D))]
    keys = torch.randint(-(2**63), 2**63 - 1, (B,))
    with keyed_dropout(keys):
        output = add_and_norm(*given, rate=rate)
    gradients = torch.autograd.grad(output, given, grad)
    wide = [tensor.detach().double().requires_grad_() for tensor in given]
    expected = in_float64(wide[0], wide[1], wide[2], wide[3], rate, keys)
    expected_gradients = torch.autograd.grad(expected, wide, grad.double())
    for found, right in zip((output, *gradients), (expected, *expected_gradients), strict=True):
        error = (found.double() - right).abs().max()
        assert error <= 2e-5 * right.abs().max().clamp(min=1e-30) * (10 if size < 1 else 1)


@needs_kernels
def test_bits_depend_on_neither_neighbors_nor_threads() -> None:
    x, y = torch.randn(64, 30, 128), torch.randn(64, 30, 128)
    gamma, beta = torch.randn(128).requires_grad_(), torch.randn(128)
    keys = torch.arange(64)
    results = []
    for threads in (1, 2):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            with keyed_dropout(keys):
                whole = add_and_norm(x, y, gamma, beta, rate=0.3)
            results.append((whole, *torch.autograd.grad(whole.pow(2).sum(), gamma)))
        finally:
            torch.set_num_threads(before)
    assert all(one.equal(other) for one, other in zip(*results, strict=True))
    with keyed_dropout(keys[20:23]):
        assert add_and_norm(x[20:23], y[20:23], gamma, beta, rate=0.3).equal(results[0][0][20:23])


def test_without_keys_a_seed_repeats_and_it_drops_what_dropout_drops() -> None:
    x, y, gamma, beta = torch.randn(3, 4, 16), torch.randn(3, 4, 16), torch.ones(16), torch.zeros(16)
    torch.manual_seed(1)
    first = add_and_norm(x, y, gamma, beta, rate=0.5)
    torch.manual_seed(1)
    torch.testing.assert_close(layer_norm(x + dropout(y, 0.5), gamma, beta), first)


@pytest.mark.parametrize(
    "shapes", [((2, 3, 8), (1, 3, 8)), ((0, 3, 8), (0, 3, 8)), ((2, 8), (2, 8)), ((8,), (8,))], ids=str
)
def test_shapes_that_are_no_batch_go_another_way_or_the_same(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    x, y = torch.randn(shapes[0]), torch.randn(shapes[1])
    gamma, beta = torch.randn(8), torch.randn(8)
    torch.testing.assert_close(add_and_norm(x, y, gamma, beta), layer_norm(x + y, gamma, beta))


def test_strides_types_and_many_directions() -> None:
    gamma, beta = torch.randn(8), torch.randn(8)
    x = torch.randn(3, 8, 5).transpose(1, 2).requires_grad_()
    y = torch.randn(3, 5, 8, requires_grad=True)
    torch.testing.assert_close(add_and_norm(x, y, gamma, beta), layer_norm(x + y, gamma, beta))
    halves = add_and_norm(x.bfloat16(), y.bfloat16(), gamma.bfloat16(), beta.bfloat16())
    assert halves.dtype == torch.bfloat16
    given = [torch.randn(3, 5, 8, requires_grad=True), y, gamma.requires_grad_(), beta.requires_grad_()]
    with keyed_dropout(torch.arange(3)):
        output = add_and_norm(*given, rate=0.5)
    directions = torch.randn(2, 3, 5, 8)
    many = torch.autograd.grad(output, given, directions, is_grads_batched=True, retain_graph=True)
    for number, direction in enumerate(directions):
        one = torch.autograd.grad(
            output, given, direction.transpose(0, 1).contiguous().transpose(0, 1), retain_graph=True
        )
        for found, right in zip(many, one, strict=True):
            torch.testing.assert_close(found[number], right, atol=1e-5, rtol=1e-4)


def test_what_is_not_a_number_stays_so() -> None:
    x, y = torch.zeros(2, 2, 8), torch.zeros(2, 2, 8)
    y[0, 1, 3] = torch.nan
    output = add_and_norm(x, y, torch.ones(8), torch.zeros(8))
    assert output[0, 1].isnan().all()
    assert output[1].eq(0).all()


def test_a_single_row_with_keys_is_no_batch() -> None:
    x, y, gamma, beta = torch.randn(8), torch.randn(8), torch.randn(8), torch.randn(8)
    with keyed_dropout(torch.arange(8)):
        found = add_and_norm(x, y, gamma, beta, rate=0.5)
    with keyed_dropout(torch.arange(8)):
        torch.testing.assert_close(found, layer_norm(x + dropout(y, 0.5), gamma, beta))


@needs_kernels
def test_second_derivatives_are_refused_and_not_zero() -> None:
    x = torch.randn(2, 3, 8, requires_grad=True)
    loss = (add_and_norm(x, x * x, torch.ones(8), torch.zeros(8)) * torch.randn(2, 3, 8)).sum()
    with pytest.raises(InputError, match="add_and_norm has no second derivatives"):
        torch.autograd.grad(loss, x, create_graph=True)


def test_signs_of_lazily_negated_gradients_and_forward_derivatives() -> None:
    x, y = torch.randn(2, 3, 8, requires_grad=True), torch.randn(2, 3, 8)
    gamma, beta, grad = torch.randn(8), torch.randn(8), torch.randn(2, 3, 8)
    output = add_and_norm(x, y, gamma, beta)
    (gradient,) = torch.autograd.grad(output, x, grad, retain_graph=True)
    (negated,) = torch.autograd.grad(output, x, torch._neg_view(grad))
    torch.testing.assert_close(negated, -gradient)
    with forward_ad.dual_level():
        along = forward_ad.unpack_dual(add_and_norm(forward_ad.make_dual(x.detach(), grad), y, gamma, beta)).tangent
    expected = torch.func.jvp(lambda x: layer_norm(x + y, gamma, beta), (x.detach(),), (grad,))[1]
    torch.testing.assert_close(along, expected)
