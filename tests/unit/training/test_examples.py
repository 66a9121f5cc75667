from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data import Dates, Tokenizer, encode_corpus
from regard.errors import DataError
from regard.tasks.text2text import TextToTextTask
from regard.training.examples import Cuts, Examples, Limit, Position, StepLoader


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train((text for pair in Dates(count=300).pairs() for text in pair), vocab_size=450, tags=["<2x>"])


@pytest.fixture
def examples(tokenizer: Tokenizer, tmp_path: Path) -> Examples:
    corpora = [
        encode_corpus(Dates(count=50, seed=seed), TextToTextTask(), tokenizer, tokenizer, tmp_path) for seed in (1, 2)
    ]
    return Examples(corpora, tokenizer, tokenizer, tags=[None, "<2x>"], weights=[1.0, 1.0])


def test_a_batch_has_start_end_tag_and_padding(tokenizer: Tokenizer, examples: Examples) -> None:
    texts = [pair for seed in (1, 2) for pair in Dates(count=50, seed=seed).pairs()]
    chosen = np.array([3, 70, 99])
    batch = examples.batch(chosen)
    assert batch.examples_B.tolist() == chosen.tolist()
    for row, example in enumerate(chosen):
        source, target = (tokenizer.encode(text) for text in texts[example])
        tag = [tokenizer.number("<2x>")] if example >= 50 else []
        expected = [*tag, *source, 2]
        assert batch.source_BS[row, : len(expected)].tolist() == expected
        assert not batch.source_BS[row, len(expected) :].any()
        assert batch.labels_BT[row, : len(target) + 1].tolist() == [*target, 2]
        assert batch.target_BT[row, : len(target) + 1].tolist() == [1, *target]
    assert batch.tokens == int((batch.labels_BT != 0).sum())


def test_shares_of_processes_are_the_batch(examples: Examples) -> None:
    batch = examples.batch(np.arange(7))
    shares = [batch.share(rank, 3) for rank in range(3)]
    assert sum(share.tokens for share in shares) == batch.tokens
    assert sorted(int(n) for share in shares for n in share.examples_B) == list(range(7))
    assert all(share.source_BS.size(1) == batch.source_BS.size(1) for share in shares)
    assert [len(batch.share(rank, 9).examples_B) for rank in range(9)] == [1] * 7 + [0] * 2


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_any_position_gives_the_rest_of_the_epoch(
    tokenizer: Tokenizer, examples: Examples, workers: int, rate: float
) -> None:
    cuts = Cuts.of(tokenizer, tokenizer, rate, seed=5)
    loader = StepLoader(examples, budget=300, accumulate=2, seed=5, cuts=cuts, workers=workers)
    whole = list(loader.steps_from(Position(1, 0)))
    assert len(whole) == loader.steps_in(1) > 3
    assert whole[-1][0] == Position(2, 0)
    seen = sorted(int(n) for _, batches in whole for batch in batches for n in batch.examples_B)
    assert seen == list(range(100))
    fresh = StepLoader(examples, budget=300, accumulate=2, seed=5, cuts=cuts, workers=0)
    for (after, batches), (expected_after, expected) in zip(fresh.steps_from(Position(1, 2)), whole[2:], strict=True):
        assert after == expected_after
        for batch, other in zip(batches, expected, strict=True):
            assert batch.source_BS.equal(other.source_BS)
            assert batch.labels_BT.equal(other.labels_BT)


def test_loading_draws_nothing_from_training(examples: Examples) -> None:
    loader = StepLoader(examples, budget=300, accumulate=1, seed=5)
    before = torch.get_rng_state()
    list(loader.steps_from(Position()))
    assert torch.get_rng_state().equal(before)


def test_long_pairs_are_counted_and_left_out(tokenizer: Tokenizer, tmp_path: Path) -> None:
    corpus = encode_corpus(Dates(count=50), TextToTextTask(), tokenizer, tokenizer, tmp_path)
    lengths = np.maximum(corpus.source.lengths, corpus.target.lengths) + 1
    limit = int(np.median(lengths))
    examples = Examples(
        [corpus], tokenizer, tokenizer, tags=[None], weights=[1.0], limit=Limit("data.max_length", limit)
    )
    assert examples.left_out == int((lengths > limit).sum()) > 0
    planned = np.concatenate(examples.plan(budget=200, seed=1, epoch=0))
    assert sorted(planned) == np.flatnonzero(lengths <= limit).tolist()
    with pytest.raises(DataError, match=r"all 50 pairs are longer than data\.max_length 1"):
        Examples([corpus], tokenizer, tokenizer, tags=[None], weights=[1.0], limit=Limit("data.max_length", 1))


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_curriculum_begins_with_the_shortest_examples(examples: Examples, accumulate: int) -> None:
    loader = StepLoader(examples, budget=100, accumulate=accumulate, seed=5, curriculum=200)
    lengths, step, position = [], 0, Position()
    while step < 260:
        for after, batches in loader.steps_from(position, step):
            lengths.append(max(max(batch.source_BS.size(1), batch.target_BT.size(1)) for batch in batches))
            step, position = step + 1, after
    for done, length in enumerate(lengths, 1):
        allowed = examples.length_of_share(min(1.0, max(0.01, done / 200)))
        assert length <= allowed or length == min(lengths)
    assert max(lengths[:40]) < max(lengths[200:]) == examples.length_of_share(1.0)


def test_a_curriculum_goes_on_at_any_step_as_without_a_pause(examples: Examples) -> None:
    def taken(position: Position, step: int, until: int) -> list[tuple[Position, list[int]]]:
        loader = StepLoader(examples, budget=100, accumulate=2, seed=5, curriculum=60)
        steps: list[tuple[Position, list[int]]] = []
        while step < until:
            for after, batches in loader.steps_from(position, step):
                steps.append((after, [int(n) for batch in batches for n in batch.examples_B]))
                step, position = step + 1, after
                if step == until:
                    break
        return steps

    whole = taken(Position(), 0, 80)
    for pause in range(1, 80):
        assert taken(whole[pause - 1][0], pause, 80) == whole[pause:]


def test_a_curriculum_takes_a_batch_where_all_are_too_long(tokenizer: Tokenizer, examples: Examples) -> None:
    loader = StepLoader(examples, budget=10**6, accumulate=1, seed=5, curriculum=1000)
    ((after, (batch,)),) = loader.steps_from(Position())
    assert after == Position(1, 0)
    assert len(batch.examples_B) == 100


def test_words_that_are_cut_anew_stay_within_the_limit(tokenizer: Tokenizer, tmp_path: Path) -> None:
    encoded = encode_corpus(Dates(count=50), TextToTextTask(), tokenizer, tokenizer, tmp_path)

    def longest(limit: Limit | None) -> int:
        """Return the length of the longest side where nearly all words are cut into characters."""
        examples = Examples([encoded], tokenizer, tokenizer, tags=[None], weights=[1.0], limit=limit)
        batch = examples.batch(examples.numbers, cuts=Cuts.of(tokenizer, tokenizer, 0.9, seed=1))
        return max(batch.source_BS.size(1), batch.target_BT.size(1))

    assert longest(None) > 14 >= longest(Limit("model.max_positions", 14))
