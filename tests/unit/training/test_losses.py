import pytest
import torch
import torch.nn.functional as F

from regard.training.examples import Batch
from regard.training.losses import cross_entropy, r_drop


def batch_of(labels: torch.Tensor) -> Batch:
    return Batch(labels, labels, labels, torch.arange(len(labels)), int((labels != 0).sum()))


@pytest.mark.parametrize("rows", [3, 200])
def test_r_drop_is_its_formula(rows: int) -> None:
    """Against the same written with torch's own functions, forward and backward, across the pieces it works in."""
    W, T = 11, 4
    labels = torch.randint(1, W, (rows, T))
    labels[0, 2:] = 0
    logits = [torch.randn(rows, T, W, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    passes = iter(logits)
    found = r_drop(5.0, 0.1)(lambda source, target: next(passes), batch_of(labels))

    real = labels != 0
    one, two = (x[real] for x in logits)
    likely = [F.cross_entropy(x, labels[real], label_smoothing=0.1, reduction="sum") for x in (one, two)]
    logs = one.log_softmax(-1), two.log_softmax(-1)
    apart = F.kl_div(logs[0], logs[1], reduction="sum", log_target=True)
    apart = apart + F.kl_div(logs[1], logs[0], reduction="sum", log_target=True)
    expected = (likely[0] + likely[1]) / 2 + 5.0 / 4 * apart

    torch.testing.assert_close(found, expected)
    for mine, theirs in zip(
        torch.autograd.grad(3 * found, logits), torch.autograd.grad(3 * expected, logits), strict=True
    ):
        torch.testing.assert_close(mine, theirs)


def test_passes_that_agree_cost_the_cross_entropy_alone() -> None:
    logits, labels = torch.randn(2, 3, 7), torch.randint(1, 7, (2, 3))
    model = lambda source, target: logits  # noqa: E731
    torch.testing.assert_close(r_drop(5.0)(model, batch_of(labels)), cross_entropy()(model, batch_of(labels)))
