import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.errors import InputError
from regard.ops import label_smoothed_cross_entropy, r_drop_loss


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


def test_no_memory_is_looked_at_on_other_devices() -> None:
    logits, targets = torch.zeros(2, 3, 8, device="meta"), torch.zeros(2, 3, dtype=torch.int64, device="meta")
    assert label_smoothed_cross_entropy(logits, targets, pad_id=0).device.type == "meta"


@given(st.integers(2, 7), st.floats(0, 0.9), st.floats(0, 5), st.integers(0, 100))
def test_r_drop_is_its_equation(W: int, smoothing: float, alpha: float, seed: int) -> None:
    torch.manual_seed(seed)
    first, second = torch.randn(2, 5, W, dtype=torch.float64)
    targets = torch.randint(0, W, (5,))
    losses = [written_out(logits, targets, smoothing, None).sum() for logits in (first, second)]
    one, other = first.softmax(-1), second.softmax(-1)
    divergence = (one * (one / other).log()).sum() + (other * (other / one).log()).sum()
    found = r_drop_loss(first, second, targets, smoothing=smoothing, alpha=alpha)
    torch.testing.assert_close(found, sum(losses) / 2 + alpha / 4 * divergence)


def test_bad_passes_of_r_drop_are_told() -> None:
    logits, targets = torch.randn(3, 4), torch.tensor([0, 1, 2])
    with pytest.raises(InputError, match=r"passes of shapes \(3, 4\) and \(2, 4\) must be of one shape"):
        r_drop_loss(logits, logits[:2], targets, alpha=1.0)
    with pytest.raises(InputError, match="alpha is -1.0; it must be at least 0"):
        r_drop_loss(logits, logits, targets, alpha=-1.0)
