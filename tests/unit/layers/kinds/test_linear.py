"""Linear attention against the quadratic form of its papers' equations."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import InputError
from regard.layers.kinds import LinearAttention
from regard.layers.kinds.linear import FeatureMap, Gating
from regard.layers.kv_cache import KeyValue
from tests.unit.layers.kinds.problems import Problem, assert_same, heads, problem, problems, segments_of, weighted

maps = st.sampled_from(["elu", "relu", "softmax"])
lengths_of_segments = st.sampled_from([1024, 50])


def layer_of(feature_map: FeatureMap = "elu", gating: Gating = "none") -> LinearAttention:
    torch.manual_seed(0)
    return LinearAttention(6, 4, 2, 4, feature_map=feature_map, gating=gating).double()


def features(x: Tensor, feature_map: FeatureMap) -> Tensor:
    if feature_map == "elu":
        return F.elu(x) + 1
    return x.relu() + 1e-3 if feature_map == "relu" else torch.cat([x.softmax(-1), (-x).softmax(-1)], dim=-1)


def reference(layer: LinearAttention, given: Problem, *, causal: bool) -> Tensor:
    """Σ_e φ(q_t)_e φ(k_s)_e Π α_ue over the positions u after s, up to t, that are not hidden, as weights."""
    query = features(given.query_BHTK, layer.feature_map)
    key = heads(features(given.key_BGSK, layer.feature_map), 4)
    if layer.gating == "none":
        return weighted(query @ key.mT, given, causal=causal)
    if layer.gating == "retention":
        gamma = torch.tensor([1 - 2.0 ** (-5 - head) for head in range(4)]).double()
        log_decay = gamma.log().view(1, 4, 1, 1).expand(3, 4, key.size(2), key.size(3))
    else:
        assert layer.gate_contract is not None
        assert layer.gate_expand is not None
        gates = layer.gate_expand(layer.gate_contract(given.states_BSD))
        log_decay = heads((F.logsigmoid(gates) / 16).view(3, -1, 2, key.size(3)).transpose(1, 2), 4)
    if given.allowed_BS is not None:
        log_decay = log_decay * given.allowed_BS[:, None, :, None]
    total = log_decay.cumsum(2)
    decay = (total[:, :, :, None] - total[:, :, None]).clamp_max(0.0).exp()
    return weighted(torch.einsum("bhte,bhse,bhtse->bhts", query, key, decay), given, causal=causal)


@settings(max_examples=25)
@given(problems(), maps, st.sampled_from(["none", "retention", "gla"]), lengths_of_segments)
def test_it_is_the_quadratic_form_where_it_is_causal(
    given: Problem, feature_map: FeatureMap, gating: Gating, segment: int
) -> None:
    layer = layer_of(feature_map, gating)
    inputs = (*given.inputs, *layer.parameters())
    with segments_of(segment):
        found = layer(given.query_BHTK, given.key_value, given.allowed_BS, states_BSD=given.states_BSD, causal=True)
        assert_same(found, reference(layer, given, causal=True), inputs)


@settings(max_examples=25)
@given(problems(same_length=False), maps, lengths_of_segments)
def test_it_is_the_quadratic_form_where_all_keys_are_seen(
    given: Problem, feature_map: FeatureMap, segment: int
) -> None:
    layer = layer_of(feature_map)
    with segments_of(segment):
        found = layer(given.query_BHTK, given.key_value, given.allowed_BS)
        assert_same(found, reference(layer, given, causal=False), given.inputs)


@pytest.mark.parametrize("causal", [True, False])
def test_a_row_without_keys_gets_zeros_and_zero_gradients(causal: bool) -> None:
    given = problem(70, 70, masked=True)
    found = layer_of()(given.query_BHTK, given.key_value, given.allowed_BS, causal=causal)
    assert found[-1].eq(0.0).all()
    for grad in torch.autograd.grad(found.square().sum() + found.sum(), given.inputs):
        assert grad[-1].eq(0.0).all()


@pytest.mark.parametrize("gating", ["none", "retention", "gla"])
def test_the_future_changes_nothing(gating: Gating) -> None:
    layer, one, other = layer_of("elu", gating), problem(200, 200), problem(200, 200, seed=1, scale=30.0)
    for start in (1, 63, 64, 130):
        mixed = [torch.cat([x[:, :, :start], y[:, :, start:]], dim=2) for x, y in zip(one.inputs, other.inputs)]  # noqa: B905
        states = torch.cat([one.states_BSD[:, :start], other.states_BSD[:, start:]], dim=1)
        before = layer(one.query_BHTK, one.key_value, states_BSD=one.states_BSD, causal=True)
        after = layer(mixed[0], KeyValue(*mixed[1:]), states_BSD=states, causal=True)
        assert after[:, :, :start].equal(before[:, :, :start])


@pytest.mark.parametrize("bias", [-1e4, -300.0, 300.0])
def test_gates_that_forget_all_or_nothing_are_exact_in_float32(bias: float) -> None:
    layer, given = layer_of("elu", "gla"), problem(150, 150)
    assert layer.gate_expand is not None
    with torch.no_grad():
        layer.gate_expand.bias[::2] = bias
    single = [x.detach().float().requires_grad_() for x in given.inputs]
    found = layer.float()(single[0], KeyValue(*single[1:]), states_BSD=given.states_BSD.float(), causal=True)
    expected = reference(layer.double(), given, causal=True)
    assert (found - expected).abs().max() < 1e-5
    for grad in torch.autograd.grad(found.sum(), single):
        assert grad.isfinite().all()


def test_features_that_are_almost_nothing_still_average() -> None:
    given = problem(40, 40)
    far = [(x - 200.0).detach().float().requires_grad_() for x in given.inputs[:2]]
    found = layer_of().float()(far[0], KeyValue(far[1], given.value_BGSV.float()), causal=True)
    assert found[0, 0, 0].allclose(given.value_BGSV[0, 0, 0].float())
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(found.sum(), far))


@pytest.mark.parametrize("gating", ["none", "gla"])
def test_gradients_have_gradients_in_segments_too(gating: Gating) -> None:
    layer, given = layer_of("elu", gating), problem(70, 70)
    inputs = (*given.inputs, *layer.parameters())

    def second_order() -> tuple[Tensor, ...]:
        output = layer(given.query_BHTK, given.key_value, states_BSD=given.states_BSD, causal=True)
        first = torch.autograd.grad(output.square().sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum(grad.square().sum() for grad in first), inputs)  # type: ignore[arg-type]

    expected = second_order()
    with segments_of(32):
        for ours, theirs in zip(second_order(), expected, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_autocast_does_not_touch_the_sums() -> None:
    given, layer = problem(300, 300), layer_of().float()
    single = [x.detach().float() for x in given.inputs]
    expected = layer(single[0], KeyValue(*single[1:]), causal=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(single[0], KeyValue(*single[1:]), causal=True).equal(expected)


def test_memory_is_linear_and_small_for_65536_positions() -> None:
    """One head, forward and backward: the weights alone would be 17 GB."""
    layer = LinearAttention(4, 1, 1, 4, gating="retention")
    query, key, value = (torch.randn(1, 1, 65536, 4).requires_grad_() for _ in range(3))
    layer(query, KeyValue(key, value), causal=True).sum().backward()
    assert math.isfinite(query.grad.sum().item())  # type: ignore[union-attr]


def test_what_has_no_meaning_is_refused() -> None:
    given = problem(3, 3)
    with pytest.raises(InputError, match="retention gating was called without causal=True"):
        layer_of("elu", "retention")(given.query_BHTK, given.key_value)
    with pytest.raises(InputError, match="computes its gates from the states of the keys, and has none"):
        layer_of("elu", "gla")(given.query_BHTK, given.key_value, causal=True)
