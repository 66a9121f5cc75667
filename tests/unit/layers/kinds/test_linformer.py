"""Linformer against its formula and, as mixtures are added, against softmax attention."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import InputError, attention
from regard.layers.kinds import LinformerAttention
from regard.layers.kv_cache import KeyValue, KeyValueCache
from tests.unit.layers.kinds.problems import Problem, assert_same, heads, problem, problems


def reference(layer: LinformerAttention, given: Problem) -> Tensor:
    """Softmax(Q(EK)ᵀ/√d_k) FV of each row and head by itself."""
    key, value = heads(given.key_BGSK, 4), heads(given.value_BGSV, 4)
    rows = []
    for b in range(3):
        real = torch.ones(key.size(2)) if given.allowed_BS is None else given.allowed_BS[b]
        columns = real.double()[:, None]
        for h in range(4):
            mixed_key = layer.mix_keys[:, : key.size(2)] @ (key[b, h] * columns)
            mixed_value = layer.mix_values[:, : key.size(2)] @ (value[b, h] * columns)
            rows.append((given.query_BHTK[b, h] @ mixed_key.T / 2).softmax(-1) @ mixed_value)
    return torch.stack(rows).view(3, 4, *rows[0].shape)


@settings(max_examples=30)
@given(problems(longest=20), st.integers(1, 9))
def test_it_is_its_formula(given: Problem, width: int) -> None:
    layer = LinformerAttention(4, width=width, max_length=20).double()
    found = layer(given.query_BHTK, given.key_value, given.allowed_BS)
    assert_same(found, reference(layer, given), (*given.inputs, *layer.parameters()))
    if given.allowed_BS is not None:
        assert found[-1].eq(0.0).all()


def test_padding_changes_nothing() -> None:
    layer, given = LinformerAttention(4, width=5, max_length=20).double(), problem(20, 20)
    query, key, value = given.inputs
    short = layer(query[:, :, :8], KeyValue(key[:, :, :8], value[:, :, :8]))
    real = (torch.arange(20) < 8).expand(3, 20)
    padded = layer(query, given.key_value, real)
    torch.testing.assert_close(padded[:, :, :8], short)


def test_the_error_against_softmax_attention_falls_as_mixtures_are_added() -> None:
    """Where mixtures are means over stretches of a smooth sequence; with one for each position it is exact."""
    at = torch.arange(64).double()[:, None] / 64
    smooth = [torch.sin(6 * at * frequency + phase) for frequency, phase in ((1.0, 0.0), (1.5, 1.0), (0.7, 2.0))]
    x = torch.cat([*smooth, at], dim=-1).expand(1, 2, 64, 4)
    exact = attention(x, 3 * x, x)
    errors = []
    for width in (2, 8, 32, 64):
        layer = LinformerAttention(4, width=width, max_length=64).double()
        means = torch.eye(width).double().repeat_interleave(64 // width, 1) * width / 64
        with torch.no_grad():
            layer.mix_keys.copy_(means)
            layer.mix_values.copy_(means)
        errors.append((layer(x, KeyValue(3 * x, x)) - exact).abs().max().item())
    assert all(later < earlier / 2 for earlier, later in pairwise(errors)), errors
    assert errors[-1] < 1e-12


def test_what_it_cannot_do_is_told() -> None:
    layer, given = LinformerAttention(4, width=2, max_length=8).double(), problem(9, 9)
    with pytest.raises(InputError, match="a sequence of 9 positions is longer than Linformer's max_length 8"):
        layer(given.query_BHTK, given.key_value)
    with pytest.raises(InputError, match="no causal form: each of its keys mixes all positions"):
        layer(given.query_BHTK, given.key_value, causal=True)
    with pytest.raises(InputError, match="no causal form"):
        layer.step(given.query_BHTK, given.key_value, given.states_BSD, KeyValueCache())
