import pytest
import torch

from regard.ops import applied_rate, dropout


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("size", [1_000_003, 1_000_000])
def test_the_rate_is_the_one_it_says_and_the_mean_stays(rate: float, size: int) -> None:
    x = torch.ones(size, requires_grad=True)
    y = dropout(x, rate)
    applied = applied_rate(rate)
    assert abs(applied - rate) <= 1 / 512
    assert abs((y == 0).double().mean().item() - applied) < 4 * (applied * (1 - applied) / size) ** 0.5
    kept = y[y != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - applied)))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.equal(y)


def test_neighbors_are_independent() -> None:
    """Bytes of one random word must not go together."""
    kept = (dropout(torch.ones(80_000), 0.5) != 0).double().view(-1, 8)
    correlation = torch.corrcoef(kept.T) - torch.eye(8)
    assert correlation.abs().max() < 0.05


def test_no_rate_changes_nothing_and_seeds_repeat() -> None:
    x = torch.randn(10)
    assert dropout(x, 0.0) is x
    torch.manual_seed(3)
    first = dropout(x, 0.5)
    torch.manual_seed(3)
    assert dropout(x, 0.5).equal(first)


@pytest.mark.parametrize("rate", [0.001, 0.002, 0.01, 0.995])
def test_rates_that_bytes_would_change_are_not_rounded(rate: float) -> None:
    dropped = (dropout(torch.ones(4_000_000), rate) == 0).double().mean().item()
    assert abs(dropped - rate) < 0.1 * min(rate, 1 - rate)


def test_empty_and_reduced_precision() -> None:
    assert dropout(torch.ones(0, 3), 0.5).shape == (0, 3)
    assert dropout(torch.ones(9, dtype=torch.bfloat16), 0.5).dtype == torch.bfloat16


def test_second_derivatives() -> None:
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)

    def seeded(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return dropout(x, 0.5).pow(3)

    assert torch.autograd.gradcheck(seeded, (x,))
    assert torch.autograd.gradgradcheck(seeded, (x,))
