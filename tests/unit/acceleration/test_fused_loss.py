"""The loss fused with the output projection's matmul, against the plain loss of all logits."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.acceleration.fused_loss import linear_cross_entropy
from regard.acceleration.output_projection import FusedOutputProjection
from regard.errors import InputError
from regard.layers import OutputProjection
from regard.ops import label_smoothed_cross_entropy


@pytest.mark.parametrize("rows", [0, 3, 600])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("with_bias", [False, True])
def test_in_pieces_it_is_the_loss_of_all_logits(rows: int, smoothing: float, with_bias: bool) -> None:
    W, D = 40, 6
    states = torch.randn(rows, D, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(W, D, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(W, dtype=torch.float64, requires_grad=True) if with_bias else None
    labels = torch.randint(W, (rows,))
    found = linear_cross_entropy(states, weight, labels, bias_W=bias, smoothing=smoothing)
    logits = torch.nn.functional.linear(states, weight, bias)
    expected = label_smoothed_cross_entropy(logits, labels, smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(found, expected)
    inputs = [states, weight] + ([bias] if bias is not None else [])
    for mine, theirs in zip(
        torch.autograd.grad(2 * found, inputs), torch.autograd.grad(2 * expected, inputs), strict=True
    ):
        torch.testing.assert_close(mine, theirs)


def test_labels_that_are_all_but_impossible_have_a_finite_loss() -> None:
    weight = torch.tensor([[200.0], [-200.0]])
    found = linear_cross_entropy(torch.ones(1, 1), weight, torch.tensor([1]), smoothing=0.0)
    assert found.item() == pytest.approx(400.0)


def test_rows_need_labels() -> None:
    with pytest.raises(InputError, match=r"rows \(3, 4\) need one label each, got \(2,\)"):
        linear_cross_entropy(torch.ones(3, 4), torch.ones(5, 4), torch.zeros(2, dtype=torch.int64))


@given(st.integers(0, 40), st.sampled_from([1, 3, 8, 17, 1003]), st.sampled_from([0.0, 0.1]), st.integers(0, 2**31))
def test_floats_give_what_doubles_give(rows: int, W: int, smoothing: float, seed: int) -> None:
    torch.manual_seed(seed)
    states, weight = torch.randn(rows, 6, requires_grad=True), (3 * torch.randn(W, 6)).requires_grad_()
    labels = torch.randint(W, (rows,), dtype=torch.int32)
    found = linear_cross_entropy(states, weight, labels, smoothing=smoothing)
    wide = [tensor.detach().double().requires_grad_() for tensor in (states, weight)]
    expected = linear_cross_entropy(wide[0], wide[1], labels.long(), smoothing=smoothing)
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=1e-5)
    gradients = torch.autograd.grad(found, (states, weight)), torch.autograd.grad(expected, wide)
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine.double(), theirs, atol=1e-4, rtol=1e-4)


def test_what_is_not_a_number_is_not_lost() -> None:
    states, weight, labels = torch.randn(3, 4), torch.randn(9, 4), torch.tensor([1, 2, 3])
    states[1, 2] = torch.nan
    assert linear_cross_entropy(states, weight, labels).isnan()


@pytest.mark.parametrize("label", [-1, 9])
def test_labels_outside_the_vocabulary_are_named(label: int) -> None:
    with pytest.raises(InputError, match=f"target {label} is outside the vocabulary of 9"):
        linear_cross_entropy(torch.ones(2, 4), torch.ones(9, 4), torch.tensor([0, label]))


def test_second_derivatives_are_refused_and_not_zero() -> None:
    states = torch.randn(3, 4, requires_grad=True)
    loss = linear_cross_entropy(states, torch.randn(5, 4), torch.tensor([0, 1, 2]))
    with pytest.raises(InputError, match="linear_cross_entropy has no second derivatives"):
        torch.autograd.grad(loss, states, create_graph=True)


def test_the_most_unlikely_words_change_nothing_at_all() -> None:
    """Numbers that are not normal would slow the products down."""
    states = torch.tensor([[1.0]], requires_grad=True)
    weight = torch.tensor([[0.0], [-82.0], [-200.0]], requires_grad=True)
    loss = linear_cross_entropy(states, weight, torch.tensor([0]), smoothing=0.0)
    (gradient,) = torch.autograd.grad(loss, weight)
    assert gradient[2].item() == 0.0
    assert gradient.abs().max() < 1e-30


@pytest.mark.parametrize("bias", [False, True])
def test_a_fused_projection_gives_the_loss_and_the_gradients_of_a_plain_one(bias: bool) -> None:
    plain = OutputProjection(40, 8, bias=bias)
    states, labels = torch.randn(2, 300, 8, requires_grad=True), torch.randint(40, (2, 300))
    expected = plain.loss(states, labels, smoothing=0.1)
    expected_gradients = torch.autograd.grad(expected, [states, *plain.parameters()])
    plain.__class__ = FusedOutputProjection
    found = plain.loss(states, labels, smoothing=0.1)
    assert "LinearCrossEntropy" in type(found.grad_fn).__name__
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, [states, *plain.parameters()]), expected_gradients)


def test_a_hook_on_a_fused_projection_changes_its_loss() -> None:
    output = FusedOutputProjection(9, 4)
    states, labels = torch.randn(3, 4), torch.tensor([1, 2, 3])
    handle = output.register_forward_hook(lambda module, inputs, logits: torch.zeros_like(logits))
    torch.testing.assert_close(output.loss(states, labels), 3 * torch.tensor(9.0).log())
    handle.remove()
    output.forward = lambda states: torch.zeros(3, 9)  # type: ignore[method-assign, assignment]
    torch.testing.assert_close(output.loss(states, labels), 3 * torch.tensor(9.0).log())
