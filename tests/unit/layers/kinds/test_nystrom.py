"""Nyström attention against its formula and, as landmarks are added, against softmax attention."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import InputError, attention
from regard.layers.kinds import NystromAttention
from regard.layers.kinds.nystrom import pseudo_inverse
from regard.layers.kv_cache import KeyValue, KeyValueCache
from tests.unit.layers.kinds.problems import Problem, assert_same, heads, problem, problems


def of_one_head(query: Tensor, key: Tensor, value: Tensor, landmarks: int, iterations: int) -> Tensor:
    """softmax(QK̃ᵀ) Z softmax(Q̃Kᵀ) V of one head of one row without padding."""
    n = len(key)
    count = min(landmarks, n)
    stretches = [[i for i in range(n) if i * count // n == number] for number in range(count)]
    mean_query, mean_key = (torch.stack([x[stretch].mean(0) for stretch in stretches]) for x in (query, key))
    first, middle, last = (
        (a @ b.T / 2).softmax(-1) for a, b in ((query, mean_key), (mean_query, mean_key), (mean_query, key))
    )
    Z = middle.T / (middle.sum(0).max() * middle.sum(1).max())
    identity = torch.eye(count).double()
    for _ in range(iterations):
        AZ = middle @ Z
        Z = Z / 4 @ (13 * identity - AZ @ (15 * identity - AZ @ (7 * identity - AZ)))
    return first @ Z @ last @ value


def reference(layer: NystromAttention, given: Problem) -> Tensor:
    """Each row and head by itself, without what is hidden; zeros there."""
    key, value = heads(given.key_BGSK, 4), heads(given.value_BGSV, 4)
    rows = []
    for b in range(3):
        real = torch.ones(key.size(2)).bool() if given.allowed_BS is None else given.allowed_BS[b]
        for h in range(4):
            out = 0.0 * (value[b, h] + sum(x.sum() for x in given.inputs))  # a gradient of 0 where all is hidden
            if real.any():
                q, k, v = (x[b, h][real] for x in (given.query_BHTK, key, value))
                out = out.masked_scatter(real[:, None], of_one_head(q, k, v, layer.landmarks, layer.iterations))
            if layer.kernel is not None:
                C = layer.convolution
                shown = torch.nn.functional.pad(value[b, h] * real[:, None], (0, 0, C // 2, C // 2))
                out = out + sum(layer.kernel[h, 0, i, 0] * shown[i : i + len(out)] for i in range(C))
            rows.append(out)
    return torch.stack(rows).view(3, 4, *rows[0].shape)


@settings(max_examples=40)
@given(problems(longest=24), st.integers(1, 9), st.integers(1, 6), st.sampled_from([0, 3, 5]))
def test_it_is_its_formula(given: Problem, landmarks: int, iterations: int, convolution: int) -> None:
    layer = NystromAttention(4, 4, landmarks=landmarks, iterations=iterations, convolution=convolution).double()
    found = layer(given.query_BHTK, given.key_value, given.allowed_BS)
    if given.allowed_BS is not None:
        assert found[-1].eq(0.0).all()
        found = found.masked_fill(~given.allowed_BS[:, None, :, None], 0.0)  # padding's own output is of no use
    expected = reference(layer, given)
    if given.allowed_BS is not None:
        expected = expected.masked_fill(~given.allowed_BS[:, None, :, None], 0.0)
    assert_same(found, expected, (*given.inputs, *layer.parameters()), tolerance=1e-8)


def test_the_error_against_softmax_attention_falls_as_landmarks_are_added() -> None:
    """Of a sequence that drifts; with a landmark for each position only the pseudo-inverse is approximate."""
    torch.manual_seed(0)
    query, key = (torch.randn(2, 4, 64, 4).double().cumsum(2) / 8 for _ in range(2))
    value = torch.randn(2, 4, 64, 3).double().cumsum(2) / 8
    exact = attention(query, key, value)
    errors = [
        (NystromAttention(4, 4, landmarks=landmarks, iterations=15)(query, KeyValue(key, value)) - exact)
        .square()
        .mean()
        .sqrt()
        .item()
        for landmarks in (2, 8, 32, 64)
    ]
    assert all(later < earlier for earlier, later in pairwise(errors)), errors
    assert errors[-1] < errors[0] / 1000


def test_the_pseudo_inverse_is_that_of_moore_and_penrose() -> None:
    torch.manual_seed(0)
    matrix = (torch.randn(2, 3, 5, 5).double() + 3 * torch.eye(5)).softmax(-1)
    matrix[1, 1] = 0.0
    matrix[0, 2, 3], matrix[0, 2, :, 3] = 0.0, 0.0
    torch.testing.assert_close(pseudo_inverse(matrix, 30), torch.linalg.pinv(matrix))


def test_a_matrix_does_not_depend_on_its_neighbors() -> None:
    torch.manual_seed(0)
    matrix = torch.randn(3, 2, 6, 6).double().softmax(-1)
    alone = torch.stack([torch.stack([pseudo_inverse(head, 3) for head in row]) for row in matrix])
    torch.testing.assert_close(pseudo_inverse(matrix, 3), alone, rtol=1e-12, atol=1e-12)


def test_what_it_cannot_do_is_told() -> None:
    layer, given = NystromAttention(4, 4).double(), problem(5, 7)
    with pytest.raises(InputError, match="5 queries attend to 7 keys; Nyström attention is self-attention alone"):
        layer(given.query_BHTK, given.key_value)
    with pytest.raises(InputError, match="no causal form: a landmark averages positions that come after"):
        layer(given.query_BHTK, given.key_value, causal=True)
    with pytest.raises(InputError, match="no causal form"):
        layer.step(given.query_BHTK, given.key_value, given.states_BSD, KeyValueCache())
    with pytest.raises(InputError, match="over 4 positions; it is centered, so over an odd number"):
        NystromAttention(4, 4, convolution=4)
