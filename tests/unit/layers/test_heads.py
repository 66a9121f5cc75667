"""Heads against loops in float64: pooled means, cross-entropies and gradients, whatever the padding holds."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.errors import InputError
from regard.layers import ClassificationHead, Head, SpanHead
from regard.layers.heads import Pooling
from regard.ops.rng import keyed_dropout

D, Y = 6, 4
POOLINGS: tuple[Pooling, ...] = ("mean", "first")
lengths_of_a_batch = st.lists(st.integers(1, 7), min_size=1, max_size=5)


def mask_of(lengths: list[int], width: int) -> Tensor:
    return (torch.arange(width) < torch.tensor(lengths)[:, None])[:, None, None]


def batch_of(lengths: list[int], more: int = 2) -> tuple[Tensor, Tensor]:
    """States with padding behind every row, and their mask."""
    width = max(lengths) + more
    return torch.randn(len(lengths), width, D, dtype=torch.float64), mask_of(lengths, width)


def head_of(kind: str, **options: object) -> Head:
    head: Head = ClassificationHead(D, Y, **options) if kind == "classification" else SpanHead(D)  # type: ignore[arg-type]
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    return head.double()


def looped_logits(head: Head, states_SD: Tensor) -> list[list[float]]:
    """The logits of the real states of one sequence: a row of labels, or a row for each position."""
    weight, bias = head.linear.weight.tolist(), head.linear.bias.tolist()
    rows = states_SD.tolist()
    if isinstance(head, ClassificationHead):
        mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
        rows = [mean if head.pooling == "mean" else rows[0]]
    return [
        [math.fsum(w * x for w, x in zip(ws, row, strict=True)) + b for ws, b in zip(weight, bias, strict=True)]
        for row in rows
    ]


def looped_cross_entropy(logits: list[float], label: int, smoothing: float) -> float:
    total = math.log(math.fsum(math.exp(logit) for logit in logits))
    losses = [total - logit for logit in logits]
    return (1.0 - smoothing) * losses[label] + smoothing * sum(losses) / len(losses)


@given(lengths_of_a_batch, st.sampled_from(POOLINGS), st.sampled_from([0.0, 0.1]), st.integers(0, 999))
def test_classification_is_its_equation(lengths: list[int], pooling: Pooling, smoothing: float, seed: int) -> None:
    torch.manual_seed(seed)
    head, (states, mask) = head_of("classification", pooling=pooling), batch_of(lengths)
    labels = torch.randint(Y, (len(lengths),))
    expected = [looped_logits(head, states[row, :length])[0] for row, length in enumerate(lengths)]
    torch.testing.assert_close(head(states, mask), torch.tensor(expected, dtype=torch.float64))
    losses = [looped_cross_entropy(row, label, smoothing) for row, label in zip(expected, labels.tolist(), strict=True)]
    found = head.loss(states, labels, mask, smoothing=smoothing)
    assert found.item() == pytest.approx(sum(losses), abs=1e-12)


@given(lengths_of_a_batch, st.sampled_from([0.0, 0.1]), st.integers(0, 999))
def test_spans_are_their_equation(lengths: list[int], smoothing: float, seed: int) -> None:
    """The loss is the mean of the two cross-entropies over the positions that are not padding."""
    torch.manual_seed(seed)
    head, (states, mask) = head_of("span"), batch_of(lengths)
    spans = [sorted(torch.randint(length, (2,)).tolist()) for length in lengths]
    found, total = head(states, mask), 0.0
    for row, length in enumerate(lengths):
        expected = looped_logits(head, states[row, :length])
        torch.testing.assert_close(found[row, :length], torch.tensor(expected, dtype=torch.float64))
        assert (found[row, length:] == -torch.inf).all()
        for logits, label in zip(zip(*expected, strict=True), spans[row], strict=True):
            total += looped_cross_entropy(list(logits), label, smoothing) / 2
    loss = head.loss(states, torch.tensor(spans), mask, smoothing=smoothing)
    assert loss.item() == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize("kind", ["classification", "span"])
@pytest.mark.parametrize("pooling", POOLINGS)
@given(lengths_of_a_batch, st.integers(0, 999))
def test_padding_and_batch_mates_make_no_difference(kind: str, pooling: Pooling, lengths: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    head, (states, mask) = head_of(kind, pooling=pooling), batch_of(lengths)
    labels = torch.zeros((len(lengths), 2) if kind == "span" else (len(lengths),), dtype=torch.int64)
    other = torch.where(mask[:, 0, 0, :, None], states, 1e6)
    assert head(states, mask).equal(head(other, mask))
    assert head.loss(states, labels, mask).equal(head.loss(other, labels, mask))
    for row, length in enumerate(lengths):
        alone = head(states[row : row + 1, :length])
        together = head(states, mask)[row : row + 1]
        torch.testing.assert_close(together[:, :length] if kind == "span" else together, alone)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("kind", ["classification", "span"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradients_are_those_of_finite_differences_and_padding_has_none(
    kind: str, pooling: Pooling, smoothing: float
) -> None:
    lengths = [4, 1, 3]
    head, (states, mask) = head_of(kind, pooling=pooling), batch_of(lengths)
    labels = torch.tensor([[1, 3], [0, 0], [2, 2]]) if kind == "span" else torch.tensor([0, 3, 1])
    states.requires_grad_()
    parameters = tuple(head.parameters())
    assert torch.autograd.gradcheck(
        lambda states, *_: head.loss(states, labels, mask, smoothing=smoothing), (states, *parameters)
    )
    (gradient,) = torch.autograd.grad(head.loss(states, labels, mask, smoothing=smoothing), states)
    assert (gradient[~mask[:, 0, 0]] == 0.0).all()
    assert gradient[mask[:, 0, 0]].abs().max() > 0.0


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_sequence_of_nothing_but_padding_is_classified_by_the_bias(pooling: Pooling) -> None:
    head, (states, mask) = head_of("classification", pooling=pooling), batch_of([3, 2])
    mask = mask & torch.tensor([True, False])[:, None, None, None]
    states.requires_grad_()
    logits = head(states, mask)
    torch.testing.assert_close(logits[1], head.linear.bias)
    logits.sum().backward()
    assert states.grad is not None
    assert (states.grad[1] == 0.0).all()
    torch.testing.assert_close(head(states[:, :0]), head.linear.bias.expand(2, Y))
    assert (head_of("span")(states, mask)[1] == -torch.inf).all()


def test_what_is_dropped_from_a_sequence_is_its_own_in_training_alone() -> None:
    head, (states, mask) = head_of("classification", dropout=0.5), batch_of([3, 5, 2])

    def dropped(rows: list[int]) -> Tensor:
        with keyed_dropout(torch.tensor(rows)):
            logits: Tensor = head.train()(states[rows], mask[rows])
        return logits

    together = dropped([0, 1, 2])
    torch.testing.assert_close(dropped([2]), together[2:])
    plain = head.eval()(states, mask)
    assert not plain.isclose(together).any(1).all()
    assert plain.equal(head(states, mask))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["classification", "span"])
def test_half_precision_gives_a_loss_in_float32(kind: str, dtype: torch.dtype) -> None:
    head, (states, mask) = head_of(kind), batch_of([3, 5])
    labels = torch.tensor([[0, 2], [4, 4]]) if kind == "span" else torch.tensor([3, 1])
    exact = head.loss(states, labels, mask)
    found = head.to(dtype).loss(states.to(dtype), labels, mask)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, rtol=0.1, atol=0.1)


def test_heads_on_a_device_without_data() -> None:
    with torch.device("meta"):
        states, mask = torch.randn(2, 5, D), torch.ones(2, 1, 1, 5, dtype=torch.bool)
        for head, labels in (
            (ClassificationHead(D, Y, dropout=0.1), torch.zeros(2, dtype=torch.int64)),
            (SpanHead(D), torch.zeros(2, 2, dtype=torch.int64)),
        ):
            loss = head.loss(states, labels, mask, smoothing=0.1)
            loss.backward()
            assert loss.device == states.device
            assert all(parameter.grad is not None for parameter in head.parameters())


def test_what_does_not_fit_is_told() -> None:
    states, mask = batch_of([3, 2])
    labels = head_of("classification")
    with pytest.raises(InputError, match="pooling is 'max'; it is one of mean, first"):
        ClassificationHead(D, Y, pooling="max")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"\(batch, length, d_model\); got \(5, 6\)"):
        labels(states[0])
    with pytest.raises(InputError, match=r"boolean, of shape \(2, 1, 1, 5\); got torch.bool of shape \(2, 5\)"):
        labels(states, mask[:, 0, 0])
    with pytest.raises(InputError, match="got torch.float64"):
        labels(states, mask.double())
    with pytest.raises(InputError, match="label 4 is not one of the 4 labels that the model has, 0 to 3"):
        labels.loss(states, torch.tensor([0, 4]), mask)
    with pytest.raises(InputError, match="label -1"):
        labels.loss(states, torch.tensor([-1, 0]), mask)
    spans = head_of("span")
    for wrong in ([[0, 1], [0, 2]], [[2, 1], [0, 0]], [[-1, 1], [0, 0]], [[0, 9], [0, 0]]):
        with pytest.raises(InputError, match=r"the span -?\d to \d of row \d is not among the positions"):
            spans.loss(states, torch.tensor(wrong), mask)
    with pytest.raises(InputError, match=r"integers of shape \(2, 2\).*got torch.int64 of shape \(2,\)"):
        spans.loss(states, torch.tensor([0, 1]), mask)
    with pytest.raises(InputError, match="label smoothing is 1.5"):
        spans.loss(states, torch.zeros(2, 2, dtype=torch.int64), mask, smoothing=1.5)
