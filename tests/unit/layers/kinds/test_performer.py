"""FAVOR+ against its formula and, as features are added, against softmax attention."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import InputError, attention
from regard.layers.kinds import PerformerAttention
from regard.layers.kinds.performer import orthogonal_features
from regard.layers.kv_cache import KeyValue
from tests.unit.layers.kinds.problems import Problem, assert_same, heads, problem, problems, segments_of, weighted

FROZEN = [0.8908090715495272, 1.1316036027985827, 0.4797745276893523]


def reference(layer: PerformerAttention, given: Problem, *, causal: bool) -> Tensor:
    """The means over features of exp(ω·q - |q|²/2) exp(ω·k - |k|²/2) as weights, by the book."""

    def features(x: Tensor) -> Tensor:
        x = x * layer.scale**0.5
        log_features: Tensor = x @ layer.projection_EK.T - x.square().sum(-1, keepdim=True) / 2
        return log_features.exp() / math.sqrt(layer.features)

    return weighted(features(given.query_BHTK) @ heads(features(given.key_BGSK), 4).mT, given, causal=causal)


@settings(max_examples=40)
@given(problems(), st.booleans(), st.integers(1, 9), st.sampled_from([1024, 50]))
def test_it_is_its_formula(given: Problem, causal: bool, features: int, segment: int) -> None:
    layer = PerformerAttention(4, features=features, seed=features).double()
    with segments_of(segment):
        found = layer(given.query_BHTK, given.key_value, given.allowed_BS, causal=causal)
        assert_same(found, reference(layer, given, causal=causal), given.inputs)


@settings(max_examples=20)
@given(problems(same_length=False), st.sampled_from([1024, 50]))
def test_queries_and_keys_may_differ_in_number(given: Problem, segment: int) -> None:
    layer = PerformerAttention(4, features=8, scale=0.3).double()
    with segments_of(segment):
        found = layer(given.query_BHTK, given.key_value, given.allowed_BS)
        assert_same(found, reference(layer, given, causal=False), given.inputs)


@pytest.mark.parametrize("causal", [True, False])
def test_a_row_without_keys_gets_zeros_and_zero_gradients(causal: bool) -> None:
    given = problem(70, 70, masked=True)
    layer = PerformerAttention(4, features=8).double()
    found = layer(given.query_BHTK, given.key_value, given.allowed_BS, causal=causal)
    assert found[-1].eq(0.0).all()
    for grad in torch.autograd.grad(found.square().sum() + found.sum(), given.inputs):
        assert grad[-1].eq(0.0).all()


@pytest.mark.parametrize("causal", [True, False])
def test_the_error_against_softmax_attention_falls_as_features_are_added(causal: bool) -> None:
    given = problem(60, 60, scale=0.5)
    exact = attention(*given.inputs, causal=causal)
    errors = []
    for features in (8, 64, 512):
        found = [
            PerformerAttention(4, features=features, seed=seed).double()(
                given.query_BHTK, given.key_value, causal=causal
            )
            for seed in range(8)
        ]
        errors.append(torch.stack([(x - exact).square().mean() for x in found]).mean().sqrt().item())
    # Eight times the features, about √8 times the precision.
    assert all(later < earlier / 1.8 for earlier, later in pairwise(errors)), errors
    assert errors[-1] < 0.01


@pytest.mark.parametrize("start", [1, 63, 64, 130])
def test_the_future_changes_nothing_however_large_it_is(start: int) -> None:
    """A stabilizer over all positions would let a large key at the end push all before it to 0."""
    layer, one, other = PerformerAttention(4, features=16), problem(200, 200), problem(200, 200, seed=1, scale=20.0)
    ours, theirs = ([x.detach().float() for x in given.inputs] for given in (one, other))
    mixed = [torch.cat([x[:, :, :start], y[:, :, start:]], dim=2) for x, y in zip(ours, theirs, strict=True)]
    before = layer(ours[0], KeyValue(*ours[1:]), causal=True)
    after = layer(mixed[0], KeyValue(*mixed[1:]), causal=True)
    assert after[:, :, :start].equal(before[:, :, :start])


@pytest.mark.parametrize("causal", [True, False])
def test_hidden_keys_change_nothing_however_large_they_are(causal: bool) -> None:
    layer, given = PerformerAttention(4, features=16), problem(100, 100, masked=True)
    assert given.allowed_BS is not None
    query, key, value = (x.detach().float() for x in given.inputs)
    huge = key.masked_fill(~given.allowed_BS[:, None, :, None], 1e4)
    before = layer(query, KeyValue(key, value), given.allowed_BS, causal=causal)
    assert layer(query, KeyValue(huge, value), given.allowed_BS, causal=causal).equal(before)


@pytest.mark.parametrize("causal", [True, False])
def test_long_queries_and_keys_stay_numbers_in_float32(causal: bool) -> None:
    given, layer = problem(100, 100, scale=60.0), PerformerAttention(4, features=16)
    single = [x.detach().float().requires_grad_() for x in given.inputs]
    found = layer(single[0], KeyValue(*single[1:]), causal=causal)
    assert found.isfinite().all()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(found.sum(), single))


def test_features_are_orthogonal_and_as_long_as_gaussian_ones() -> None:
    rows = orthogonal_features(64, 16, seed=3)
    for block in rows.reshape(4, 16, 16):
        products = block @ block.T
        np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=1e-9)
    many = np.concatenate([orthogonal_features(64, 16, seed=seed) for seed in range(40)])
    np.testing.assert_allclose(many.mean(), 0.0, atol=0.02)
    np.testing.assert_allclose((many.T @ many) / len(many), np.eye(16), atol=0.12)


def test_features_are_a_function_of_the_seed_alone() -> None:
    torch.manual_seed(1)
    state, generator = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]
    first, same, other = (PerformerAttention(4, features=7, seed=seed).projection_EK for seed in (5, 5, 6))
    assert first.equal(same)
    assert not first.equal(other)
    assert torch.random.get_rng_state().equal(state)
    assert np.array_equal(np.random.get_state()[1], generator)  # type: ignore[index]
    # Frozen: a model saved today has these features tomorrow.
    np.testing.assert_allclose(orthogonal_features(1, 3, seed=0)[0], FROZEN, rtol=1e-12)


def test_features_are_rounded_once_whatever_types_they_went_through() -> None:
    layer = PerformerAttention(4, features=7)
    exact = layer.projection_EK.clone()
    assert layer.bfloat16().float().projection_EK.equal(exact)
    assert layer.double().projection_EK.equal(torch.from_numpy(orthogonal_features(7, 4, 0)))


def test_no_features_are_refused() -> None:
    with pytest.raises(InputError, match="features is 0; the Performer needs at least 1"):
        PerformerAttention(4, features=0)
