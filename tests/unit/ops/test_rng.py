import pytest
import torch
from torch.utils.checkpoint import checkpoint

from regard.errors import InputError
from regard.ops import applied_rate, dropout
from regard.ops.rng import keyed_dropout, mixed


@pytest.mark.parametrize("rate", [0.3, 0.001])
@pytest.mark.parametrize("shape", [(6, 5, 7), (6, 2, 3, 3), (6, 64)])
def test_keys_decide_what_is_dropped_from_a_row(rate: float, shape: tuple[int, ...]) -> None:
    """Neighbours, order and what was sampled before make no difference; another use and another key do."""
    x, keys = torch.ones(shape), torch.arange(6) * 1_000_003 - 7
    with keyed_dropout(keys):
        first, second = dropout(x, rate), dropout(x, rate)
    torch.rand(3)
    rows = torch.tensor([4, 0, 5])
    with keyed_dropout(keys[rows]):
        assert dropout(x[rows], rate).equal(first[rows])
        assert dropout(x[rows], rate).equal(second[rows])
    if rate > 0.1:
        assert not first.equal(second)
        assert len({tuple(row.flatten().tolist()) for row in first}) == 6


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.004])
def test_keyed_rates_are_right_and_rows_independent(rate: float) -> None:
    with keyed_dropout(torch.arange(400)):
        dropped = (dropout(torch.ones(400, 4000), rate) == 0).double()
    applied = applied_rate(rate)
    assert abs(dropped.mean().item() - applied) < 5 * (applied * (1 - applied) / dropped.numel()) ** 0.5
    if rate > 0.01:
        assert (torch.corrcoef(dropped[:50]) - torch.eye(50)).abs().max() < 0.1
        assert (torch.corrcoef(dropped[:, :50].T) - torch.eye(50)).abs().max() < 0.3


def test_keys_need_their_rows() -> None:
    with pytest.raises(InputError, match=r"keys for 3 rows; it was given \(2, 4\)"), keyed_dropout(torch.arange(3)):
        dropout(torch.ones(2, 4), 0.5)
    with keyed_dropout(torch.arange(0)):
        assert dropout(torch.ones(0, 4), 0.5).shape == (0, 4)


def test_words_are_scrambled_as_splitmix64_does() -> None:
    words = torch.randint(-(2**63), 2**63 - 1, (500,))

    def reference(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    found = mixed(words.clone()).tolist()
    assert [word % 2**64 for word in found] == [reference(word % 2**64) for word in words.tolist()]


@pytest.mark.parametrize("reentrant", [False, True])
def test_keyed_dropout_is_not_computed_again_in_a_backward_pass(reentrant: bool) -> None:
    """A second use of the keys would drop other elements than the first, and give the gradients of another function."""
    x = torch.ones(2, 8, requires_grad=True)
    with keyed_dropout(torch.arange(2)):
        output = checkpoint(dropout, x, 0.5, use_reentrant=reentrant)
        with pytest.raises(InputError, match="keyed by step cannot be recomputed; set it to 0"):
            output.sum().backward()
    checkpoint(dropout, x, 0.5, use_reentrant=reentrant).sum().backward()  # torch keeps its own random state
