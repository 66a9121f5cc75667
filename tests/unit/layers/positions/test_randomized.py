"""Randomized positions: sorted random subsets in training, 0, 1, 2 … otherwise, reproducible from keys."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regard import ConfigError, InputError, Transformer, TransformerConfig
from regard.acceleration.accelerate import accelerate
from regard.acceleration.varlen import can_use_varlen, decoder_states
from regard.layers.positions.randomized import random_positions
from regard.ops.rng import keyed_dropout
from tests.strategies import RANDOMIZED


def sampled(tokens: Tensor, keys: Tensor, end: int = 50) -> Tensor:
    with keyed_dropout(keys):
        return random_positions(tokens, 0, end).positions


def test_each_sequence_gets_a_sorted_subset_of_its_own() -> None:
    tokens = torch.ones(300, 5, dtype=torch.int64)
    positions = sampled(tokens, torch.arange(300), end=9)
    assert positions.diff(dim=1).min() >= 1
    assert (int(positions.min()), int(positions.max())) == (0, 8)
    assert len(positions.unique(dim=0)) > 80  # of 126 subsets
    counts = torch.bincount(positions.flatten(), minlength=9).double() / 300
    assert counts.min() > 0.25  # the first and the last ones are in fewer spans than those in the middle
    torch.manual_seed(1)
    without_keys = random_positions(tokens, 0, 9).positions
    assert without_keys.diff(dim=1).min() >= 1
    assert len(without_keys.unique(dim=0)) > 80
    torch.manual_seed(1)
    assert random_positions(tokens, 0, 9).positions.equal(without_keys)


def test_batch_mates_and_padding_change_nothing() -> None:
    tokens = torch.tensor(
        [[5, 6, 0, 0, 0], [5, 6, 7, 8, 9], [0, 4, 4, 0, 0]]
    )  # a target may start with the padding token
    keys = torch.tensor([11, 12, 13])
    together = sampled(tokens, keys)
    assert together[0, :2].equal(sampled(tokens[:1, :2], keys[:1])[0])
    assert together[1].equal(sampled(tokens[1:2], keys[1:2])[0])
    assert together[2, :3].equal(sampled(tokens[2:, :3], keys[2:])[0])
    assert (together.diff(dim=1) >= 0).all()
    assert together.max() < 50


def test_spans_are_of_every_length_from_the_sequence_to_the_whole() -> None:
    """The gaps in use, none, are among those of training; so are wide ones, and the last positions."""
    keys = torch.arange(2000)
    positions = sampled(torch.ones(2000, 10, dtype=torch.int64), keys, end=1000)
    assert (positions.diff(dim=1) > 0).all()
    spans = positions[:, -1] - positions[:, 0] + 1
    for low, high in ((10, 21), (21, 46), (46, 100), (100, 215), (215, 464), (464, 1001)):
        # Spans are log-uniform, and the outermost of 10 tokens leave a little of one empty.
        assert 0.1 < ((low <= spans) & (spans < high)).float().mean() < 0.26, (low, high)
    assert positions.min() == 0
    assert positions.max() > 990
    dense = positions[spans < 21]
    assert dense[:, 0].float().std() > 200, "short spans are anywhere"


def model_with(positions: Any, **changes: Any) -> Transformer:
    fields = dict(dropout=0.0, max_positions=64, random_positions=40, positions=positions)
    return Transformer(TransformerConfig.preset("tiny", vocab_size=20, d_k=4, d_model=8, **{**fields, **changes}))


@pytest.mark.parametrize("positions", RANDOMIZED, ids=str)
def test_training_draws_and_evaluation_does_not(positions: Any) -> None:
    model, plain = model_with(positions), model_with(positions, random_positions=None)
    plain.load_state_dict(model.state_dict())
    source, target = torch.randint(1, 20, (3, 6)), torch.randint(1, 20, (3, 5))
    assert model.train()(source, target).equal(model(source, target)) is False
    torch.testing.assert_close(model.eval()(source, target), plain.eval()(source, target))
    cache = model.train().start_cache(model.eval().encode(source))
    steps = [model.logits(model.decode(target[:, t : t + 1], cache=cache)) for t in range(5)]
    torch.testing.assert_close(torch.cat(steps, dim=1), plain(source, target), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("positions", RANDOMIZED, ids=str)
def test_one_draw_serves_the_embedding_and_all_layers_of_a_stack(positions: Any) -> None:
    """With positions 0 … N - 1 all sampled, training is evaluation; and the same keys give the same in any batch."""
    model = model_with(positions, random_positions=6).double().train()
    tokens = torch.randint(1, 20, (3, 6))
    trained = model(tokens, tokens)
    torch.testing.assert_close(trained, model.eval()(tokens, tokens))
    model = model_with(positions).double().train()
    with keyed_dropout(torch.tensor([1, 2, 3])):
        whole = model(tokens, tokens)
    with keyed_dropout(torch.tensor([2])):
        part = model(tokens[1:2], tokens[1:2])
    torch.testing.assert_close(part, whole[1:2])


@pytest.mark.parametrize(("positions", "expected"), [("sinusoidal", set()), ("rope", {"positions"})])
def test_layers_are_given_positions_only_if_they_are_theirs(positions: str, expected: set[str]) -> None:
    """A layer of one's own in a model with sinusoids need not know the argument."""
    model, seen = model_with(positions).train(), set[str]()
    for layer in model.encoder.layers:  # type: ignore[union-attr]
        layer.register_forward_pre_hook(lambda module, args, kwargs: seen.update(kwargs), with_kwargs=True)
    model.encode(torch.ones(1, 3, dtype=torch.int64))
    assert seen == expected


def test_training_without_padding_refuses_it() -> None:
    model = Transformer(TransformerConfig.preset("tiny", vocab_size=40, random_positions=100, dropout=0.0)).train()
    accelerate(model)
    assert not can_use_varlen(model)
    source, target = torch.randint(1, 40, (2, 6)), torch.randint(1, 40, (2, 5))
    real = torch.ones(2, 5, dtype=torch.bool)
    keys = torch.tensor([3, 4])
    with keyed_dropout(keys):
        found = decoder_states(model, source, target, real)
    with keyed_dropout(keys):
        expected = model.decode(target, model.encode(source))
    torch.testing.assert_close(found, expected.flatten(0, 1))


def test_what_does_not_fit_is_told() -> None:
    with pytest.raises(InputError, match="7 positions is longer than random_positions, 5"):
        random_positions(torch.ones(1, 7, dtype=torch.int64), 0, 5)
    with pytest.raises(ConfigError, match="random_positions is for sinusoidal, learned and rotary positions.*'t5'"):
        model_with("t5")
    with pytest.raises(ConfigError, match="random_positions 100 is more than max_positions 64"):
        model_with("learned", random_positions=100)
