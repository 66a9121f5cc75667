import pytest
import torch

from regard.errors import InputError
from regard.ops import byte_rate, dropout
from regard.ops.dropout import dropout_keyed_by, mixed


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("size", [1_000_003, 1_000_000])
def test_the_rate_is_the_one_it_says_and_the_mean_stays(rate: float, size: int) -> None:
    x = torch.ones(size, requires_grad=True)
    y = dropout(x, rate)
    applied = byte_rate(rate)
    assert abs(applied - rate) <= 1 / 512
    assert abs((y == 0).double().mean().item() - applied) < 4 * (applied * (1 - applied) / size) ** 0.5
    kept = y[y != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - applied)))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.equal(y)


def test_neighbours_are_independent() -> None:
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


@pytest.mark.parametrize("rate", [0.3, 0.001])
@pytest.mark.parametrize("shape", [(6, 5, 7), (6, 2, 3, 3), (6, 64)])
def test_keys_decide_what_is_dropped_from_a_row(rate: float, shape: tuple[int, ...]) -> None:
    """Neighbours, order and what was drawn before make no difference; another use and another key do."""
    x, keys = torch.ones(shape), torch.arange(6) * 1_000_003 - 7
    with dropout_keyed_by(keys):
        first, second = dropout(x, rate), dropout(x, rate)
    torch.rand(3)
    rows = torch.tensor([4, 0, 5])
    with dropout_keyed_by(keys[rows]):
        assert dropout(x[rows], rate).equal(first[rows])
        assert dropout(x[rows], rate).equal(second[rows])
    if rate > 0.1:
        assert not first.equal(second)
        assert len({tuple(row.flatten().tolist()) for row in first}) == 6


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.004])
def test_keyed_rates_are_right_and_rows_independent(rate: float) -> None:
    with dropout_keyed_by(torch.arange(400)):
        dropped = (dropout(torch.ones(400, 4000), rate) == 0).double()
    applied = byte_rate(rate) if rate > 0.01 else rate
    assert abs(dropped.mean().item() - applied) < 5 * (applied * (1 - applied) / dropped.numel()) ** 0.5
    if rate > 0.01:
        assert (torch.corrcoef(dropped[:50]) - torch.eye(50)).abs().max() < 0.1
        assert (torch.corrcoef(dropped[:, :50].T) - torch.eye(50)).abs().max() < 0.3


def test_keys_need_their_rows() -> None:
    with pytest.raises(InputError, match=r"keys for 3 rows and was given \(2, 4\)"), dropout_keyed_by(torch.arange(3)):
        dropout(torch.ones(2, 4), 0.5)
    with dropout_keyed_by(torch.arange(0)):
        assert dropout(torch.ones(0, 4), 0.5).shape == (0, 4)


def test_words_are_scrambled_as_splitmix64_does() -> None:
    words = torch.randint(-(2**63), 2**63 - 1, (500,))

    def reference(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    found = mixed(words.clone()).tolist()
    assert [word % 2**64 for word in found] == [reference(word % 2**64) for word in words.tolist()]
