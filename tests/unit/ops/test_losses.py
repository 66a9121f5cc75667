import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.errors import InputError
from regard.ops import label_smoothed_cross_entropy, linear_cross_entropy


def written_out(logits: Tensor, targets: Tensor, smoothing: float, pad_id: int | None) -> Tensor:
    W = logits.size(-1)
    losses = []
    for row, target in zip(logits.reshape(-1, W), targets.flatten().tolist(), strict=True):
        if target == pad_id:
            losses.append(torch.zeros((), dtype=logits.dtype))
            continue
        wanted = torch.full((W,), smoothing / W, dtype=logits.dtype)
        wanted[target] += 1 - smoothing
        losses.append(-(wanted * (row - row.exp().sum().log())).sum())
    return torch.stack(losses).view(targets.shape)


@given(st.integers(2, 7), st.floats(0, 0.9), st.sampled_from([None, 0, 1]), st.integers(0, 100))
def test_the_loss_is_its_equation_over_real_tokens(W: int, smoothing: float, pad_id: int | None, seed: int) -> None:
    torch.manual_seed(seed)
    logits = torch.randn(2, 3, W, dtype=torch.float64)
    targets = torch.randint(0, W, (2, 3))
    expected = written_out(logits, targets, smoothing, pad_id)
    options = dict(smoothing=smoothing, pad_id=pad_id)
    count = 6 if pad_id is None else int((targets != pad_id).sum())
    for reduction, value in (("none", expected), ("sum", expected.sum()), ("mean", expected.sum() / max(count, 1))):
        actual = label_smoothed_cross_entropy(logits, targets, **options, reduction=reduction)  # type: ignore[arg-type]
        torch.testing.assert_close(actual, value)


def test_a_batch_of_padding_has_no_loss_and_no_gradient() -> None:
    logits = torch.randn(1, 2, 4, requires_grad=True)
    loss = label_smoothed_cross_entropy(logits, torch.zeros(1, 2, dtype=torch.int64), pad_id=0)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == 0
    assert gradient.equal(torch.zeros(1, 2, 4))


def test_bad_targets_are_told() -> None:
    logits = torch.randn(1, 2, 4)
    with pytest.raises(InputError, match=r"\(1, 3\)"):
        label_smoothed_cross_entropy(logits, torch.zeros(1, 3, dtype=torch.int64))
    with pytest.raises(InputError, match="target 9 is outside the vocabulary of 4"):
        label_smoothed_cross_entropy(logits, torch.tensor([[1, 9]]))
    with pytest.raises(InputError, match="target -100 is outside"):
        label_smoothed_cross_entropy(logits, torch.tensor([[1, -100]]))
    with pytest.raises(InputError, match="torch.float32"):
        label_smoothed_cross_entropy(logits, torch.tensor([[1.0, 1.9]]))
    with pytest.raises(InputError, match="'summ'"):
        label_smoothed_cross_entropy(logits, torch.tensor([[1, 1]]), reduction="summ")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"1\.5"):
        label_smoothed_cross_entropy(logits, torch.tensor([[1, 1]]), smoothing=1.5)


def test_sums_do_not_overflow_in_half_precision() -> None:
    logits, targets = torch.zeros(8192, 5000, dtype=torch.float16), torch.ones(8192, dtype=torch.int64)
    assert abs(label_smoothed_cross_entropy(logits, targets).item() - 8.517) < 0.01


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


def test_no_memory_is_looked_at_on_other_devices() -> None:
    logits, targets = torch.zeros(2, 3, 8, device="meta"), torch.zeros(2, 3, dtype=torch.int64, device="meta")
    assert label_smoothed_cross_entropy(logits, targets, pad_id=0).device.type == "meta"


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
