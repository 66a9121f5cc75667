from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import InputError
from regard.data import draw_examples, padded, plan_batches


@given(
    st.lists(st.integers(1, 40), min_size=0, max_size=300), st.integers(1, 120), st.integers(0, 5), st.integers(0, 5)
)
def test_every_example_is_in_one_batch_within_the_budget(
    lengths: list[int], budget: int, seed: int, epoch: int
) -> None:
    sizes = np.array(lengths, dtype=np.int64)
    examples = draw_examples([len(lengths)], [1.0], seed=seed, epoch=epoch)
    batches = plan_batches(examples, sizes, budget=budget, seed=seed, epoch=epoch)
    assert sorted(index for batch in batches for index in batch.tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) * sizes[batch].max() <= budget or len(batch) == 1


def test_batches_are_full_of_like_lengths() -> None:
    sizes = np.random.default_rng(0).integers(1, 50, 20_000)
    batches = plan_batches(draw_examples([20_000], [1.0], seed=0, epoch=0), sizes, budget=1000, seed=0, epoch=0)
    real, shape = sum(sizes[b].sum() for b in batches), sum(len(b) * sizes[b].max() for b in batches)
    assert real / shape > 0.98
    assert np.mean([len(b) * sizes[b].max() for b in batches]) > 900


def test_order_is_a_function_of_seed_and_epoch() -> None:
    sizes = np.random.default_rng(0).integers(1, 9, 500)

    def order(seed: int, epoch: int) -> list[list[int]]:
        examples = draw_examples([500], [1.0], seed=seed, epoch=epoch)
        return [batch.tolist() for batch in plan_batches(examples, sizes, budget=50, seed=seed, epoch=epoch)]

    assert order(1, 2) == order(1, 2)
    assert len({str(order(seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9
    lengths_in_turn = [sizes[batch].max() for batch in order(0, 0)]
    assert lengths_in_turn != sorted(lengths_in_turn)


def test_weights_say_how_often_a_corpus_is_seen() -> None:
    counts: Counter[int] = Counter()
    for epoch in range(4):
        numbers = draw_examples([10, 8, 6], [1.0, 2.5, 0.5], seed=3, epoch=epoch)
        assert len(numbers) == 10 + 20 + 3
        counts.update(numbers.tolist())
    assert all(counts[index] == 4 for index in range(10))
    assert all(8 <= counts[index] <= 12 for index in range(10, 18))
    assert len([index for index in range(18, 24) if counts[index]]) > 3


def test_padding_is_on_the_right() -> None:
    assert padded([[1, 2], [], [3]], pad_id=9).tolist() == [[1, 2], [9, 9], [3, 9]]
    assert padded([], pad_id=0).shape == (0, 0)


def test_a_bad_budget_is_told() -> None:
    with pytest.raises(InputError, match="is 0"):
        plan_batches(np.arange(3), np.ones(3, dtype=np.int64), budget=0, seed=0, epoch=0)
