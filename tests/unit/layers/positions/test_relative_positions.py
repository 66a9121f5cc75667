"""Positions that are part of attention, against their papers' formulas written out for every pair."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import InputError, MultiHeadAttention
from regard.layers import AttentionParts, softmax_attention
from regard.layers.kv_cache import KeyValue
from regard.layers.positions import ALiBi, RelativePositions, ShawPositions, T5Bias
from regard.layers.positions.alibi import alibi_slopes
from regard.layers.positions.relative import distances
from regard.layers.positions.t5_bias import t5_buckets
from regard.layers.softmax_attention import Placement, SoftmaxAttention
from regard.ops.masks import Causal, DenseMask, Mask

K, V = 4, 3


@dataclass
class Case:
    """A position encoding, and what it adds to the score and to the value of one pair, by the paper."""

    positions: RelativePositions
    score: Callable[[Tensor, int, int], Tensor | float]
    """Of a query, its head, and the position of the key minus that of the query."""
    value: Callable[[int], Tensor | float] = lambda distance: 0.0


def published_slopes(heads: int) -> list[float]:
    """Return the slopes as the authors' code computes them, by recursion."""
    if math.log2(heads).is_integer():
        start = 2.0 ** -(2.0 ** -(math.log2(heads) - 3))
        return [start * start**head for head in range(heads)]
    power = 2 ** math.floor(math.log2(heads))
    return published_slopes(power) + published_slopes(2 * power)[0::2][: heads - power]


def published_bucket(distance: int, bidirectional: bool, buckets: int, max_distance: int) -> int:
    """Return T5's bucket of key position - query position: with logarithms, as published."""
    first = 0
    if bidirectional:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    grown = math.log(distance / exact) / math.log(max_distance / exact) * (buckets - exact)
    return first + min(exact + int(grown + 1e-9), buckets - 1)


def alibi(heads: int, bidirectional: bool) -> Case:
    slopes = published_slopes(heads)
    return Case(ALiBi(heads), lambda query, head, distance: -slopes[head] * abs(distance))


def t5(heads: int, bidirectional: bool) -> Case:
    layer = T5Bias(heads, bidirectional=bidirectional, buckets=8, max_distance=6).double()
    return Case(
        layer, lambda query, head, distance: layer.weight[published_bucket(distance, bidirectional, 8, 6), head]
    )


def shaw(heads: int, bidirectional: bool) -> Case:
    layer = ShawPositions(K, V, max_distance=2).double()

    def clipped(distance: int) -> int:
        return min(max(distance, -2), 2) + 2

    return Case(
        layer,
        lambda query, head, distance: query @ layer.key_vectors[clipped(distance)] / math.sqrt(K),
        lambda distance: layer.value_vectors[clipped(distance)],
    )


def looped(case: Case, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor, positions: Tensor) -> Tensor:
    """Attention over every pair by itself."""
    (B, H, T, _), G, S = query.shape, key.size(1), key.size(2)
    positions, allowed = positions.expand(B, S), allowed.expand(B, H, T, S)
    rows = []
    for b in range(B):
        at = positions[b].tolist()
        for h in range(H):
            g = h * G // H
            for t in range(T):
                seen = [s for s in range(S) if allowed[b, h, t, s]]
                if not seen:
                    rows.append(torch.zeros(V, dtype=query.dtype))
                    continue
                q = query[b, h, t]
                scores = [q @ key[b, g, s] / math.sqrt(K) + case.score(q, h, at[s] - at[t]) for s in seen]
                weights = torch.stack(scores).softmax(0)
                values = [value[b, g, s] + case.value(at[s] - at[t]) for s in seen]
                rows.append(weights @ torch.stack(values))
    return torch.stack(rows).view(B, H, T, V)


cases = pytest.mark.parametrize("kind", [alibi, t5, shaw])


@cases
@settings(max_examples=40)
@given(
    shape=st.tuples(st.integers(1, 2), st.sampled_from([(1, 1), (2, 1), (3, 3), (4, 2)]), st.integers(1, 9)),
    causal=st.booleans(),
    own_positions=st.sampled_from(["none", "one", "each"]),
    blocks=st.sampled_from([None, 2, 3]),
    seed=st.integers(0, 1000),
)
def test_outputs_and_gradients_are_those_of_the_formula(
    kind: Callable[[int, bool], Case],
    shape: tuple[int, tuple[int, int], int],
    causal: bool,
    own_positions: str,
    blocks: int | None,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    B, (H, G), T = shape
    case = kind(H, not causal)
    query = torch.randn(B, H, T, K, dtype=torch.float64, requires_grad=True)
    key = torch.randn(B, G, T, K, dtype=torch.float64, requires_grad=True)
    value = torch.randn(B, G, T, V, dtype=torch.float64, requires_grad=True)
    allowed = torch.rand(B, 1, T, T) < 0.7  # some queries attend to nothing
    mask: Mask = DenseMask(allowed)
    if causal:
        allowed, mask = allowed & Causal().dense(T, T), mask & Causal()
    index = torch.arange(T)
    positions = {"none": index, "one": 3 * index, "each": torch.randint(0, 20, (B, T)).sort(1).values}[own_positions]
    at = Placement(index, index, positions, positions)

    with pytest.MonkeyPatch.context() as patch:
        if blocks is not None:
            patch.setattr(softmax_attention, "_DENSE", 0)
            patch.setattr(softmax_attention, "_BLOCK", blocks)
        attend = SoftmaxAttention(K**-0.5, case.positions)
        found = attend(query, KeyValue(key, value), mask, None, at)
        expected = looped(case, query, key, value, allowed, positions)
        torch.testing.assert_close(found, expected)
        inputs = [query, key, value, *case.positions.parameters()]
        upstream = torch.randn_like(found)
        gradients = torch.autograd.grad(found, inputs, upstream, allow_unused=True)
    references = torch.autograd.grad(expected, inputs, upstream, allow_unused=True) if expected.requires_grad else ()
    for gradient, reference in zip(gradients, references, strict=False):
        zero = torch.zeros(())
        torch.testing.assert_close(
            zero.double() if gradient is None else gradient,
            torch.zeros_like(zero.double() if gradient is None else gradient) if reference is None else reference,
        )


@cases
def test_a_longer_block_or_a_cache_gives_the_weights_of_the_whole(kind: Callable[[int, bool], Case]) -> None:
    """Any rows and columns of the bias are what they are in the whole."""
    case, index = kind(3, False), torch.arange(12)
    query = torch.randn(2, 3, 12, K, dtype=torch.float64)
    whole = case.positions.bias(query, index, index)
    rows, columns = torch.tensor([4, 5, 9]), torch.tensor([0, 7, 8, 11])
    part = case.positions.bias(query[:, :, rows], index[rows], index[columns])
    torch.testing.assert_close(part, whole[:, :, rows][..., columns])
    offsets = torch.tensor([[4], [9]])
    steps = case.positions.bias(query[:, :, :1], offsets, index)
    whole = case.positions.bias(query[:, :, :1].expand(2, 3, 12, K), index, index).expand(2, 3, 12, 12)
    torch.testing.assert_close(steps.expand(2, 3, 1, 12), torch.stack([whole[0, :, 4:5], whole[1, :, 9:10]]))


@pytest.mark.parametrize("heads", range(1, 33))
def test_alibi_has_the_published_slopes_for_any_number_of_heads(heads: int) -> None:
    assert alibi_slopes(heads).tolist() == pytest.approx(published_slopes(heads), rel=1e-12)


@given(st.integers(1, 20).map(lambda half: 2 * half), st.integers(1, 300), st.booleans())
def test_t5_has_the_published_buckets(half: int, extra: int, bidirectional: bool) -> None:
    buckets, max_distance = 2 * half, half + extra
    layer = T5Bias(1, bidirectional=bidirectional, buckets=buckets, max_distance=max_distance)
    torch.nn.init.zeros_(layer.weight)
    layer.weight.data[:, 0] = torch.arange(buckets)
    span = torch.arange(-max_distance - 5, max_distance + 6)
    found = layer.bias(torch.zeros(1, 1, 1, 1), torch.zeros(1, dtype=torch.int64), span)[0, 0, 0]
    expected = [published_bucket(d, bidirectional, buckets, max_distance) for d in span.tolist()]
    assert found.tolist() == expected


def test_keys_behind_their_query_have_the_upper_half_of_the_buckets() -> None:
    assert t5_buckets(16, 128)[:9] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    layer = T5Bias(1, bidirectional=True)
    layer.weight.data[:, 0] = torch.arange(32)
    bias = layer.bias(torch.zeros(1, 1, 3, 1), torch.arange(3), torch.arange(3))[0, 0]
    assert bias.tolist() == [[0, 17, 18], [1, 0, 17], [2, 1, 0]]


def test_layers_of_a_stack_share_one_table() -> None:
    first = T5Bias(4, bidirectional=True)
    assert T5Bias(4, bidirectional=True, tied_to=first.weight).weight is first.weight


def test_relative_keys_and_values_never_take_a_vector_for_each_pair() -> None:
    """No tensor of the whole computation, backward pass included, is as large as T × T × d_k."""
    T, d = 300, 32
    layer = ShawPositions(d, d, max_distance=4)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, tuple | list) else [result]:
                if isinstance(tensor, Tensor):
                    largest = max(largest, tensor.untyped_storage().nbytes())
            return result

    x = torch.randn(1, 2, T, d, requires_grad=True)
    index = torch.arange(T)
    with Watch():
        attend = SoftmaxAttention(d**-0.5, layer)
        attend(x, KeyValue(x, x), None, None, Placement(index, index, index, index)).sum().backward()
    assert 2 * T * T * 4 <= largest <= 2 * T * T * 8  # scores of two heads, or whole numbers as many
    assert layer.value_vectors.grad is not None


@pytest.mark.parametrize(("queries", "keys"), [((0, 40), (0, 700)), ((300, 400), (0, 700)), ((600, 650), (0, 600))])
def test_keys_that_are_far_from_all_queries_count_as_if_each_had_its_vector(
    queries: tuple[int, int], keys: tuple[int, int]
) -> None:
    torch.manual_seed(1)
    layer = ShawPositions(4, 4, max_distance=5).double()
    at, of = torch.arange(*queries), torch.arange(*keys)
    query = torch.randn(2, 3, at.numel(), 4, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(2, 3, at.numel(), of.numel(), dtype=torch.float64, requires_grad=True)
    clipped = (of - at[:, None]).clamp(-5, 5) + 5
    expected = (
        torch.einsum("bhtk,tsk->bhts", query, layer.key_vectors[clipped]) * 0.5,
        torch.einsum("bhts,tsv->bhtv", weights, layer.value_vectors[clipped]),
    )
    found = layer.bias(query, at, of), layer.values(weights, at, of)
    inputs = (query, weights, layer.key_vectors, layer.value_vectors)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
        seed = torch.randn_like(one)
        gradients = [torch.autograd.grad(some, inputs, seed, allow_unused=True) for some in (one, other)]
        for a, b in zip(*gradients, strict=True):
            assert (a is None) == (b is None)
            if a is not None and b is not None:
                torch.testing.assert_close(a, b)


def test_bad_options_are_told() -> None:
    with pytest.raises(InputError, match="buckets is 7; T5 has two halves"):
        T5Bias(2, bidirectional=False, buckets=7)
    with pytest.raises(InputError, match="max_distance is 16; with 32 buckets"):
        T5Bias(2, bidirectional=False, max_distance=16)
    with pytest.raises(InputError, match="max_distance is 0"):
        ShawPositions(4, 4, max_distance=0)
    layer = MultiHeadAttention(8, 2, parts=AttentionParts(positions=ALiBi(2)))
    with pytest.raises(InputError, match="5 queries attend to 7 keys"):
        layer(torch.randn(1, 5, 8), torch.randn(1, 7, 8))


class NearBias(RelativePositions):
    def bias(self, query_BHTK: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        return -5.0 * distances(query_positions, key_positions).abs()


class WeightSums(RelativePositions):
    def values(self, weights_BHTS: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        return weights_BHTS.sum(-1, keepdim=True)


def test_what_a_subclass_defines_is_added() -> None:
    class Silent(NearBias):
        adds_bias = False

    class StillSilent(Silent):
        """What it inherits says that there is none."""

    class Loud(Silent, WeightSums):
        bias = NearBias.bias

    flags = {cls: (cls.adds_bias, cls.adds_values) for cls in (NearBias, WeightSums, Silent, StillSilent, Loud)}
    assert flags == {
        NearBias: (True, False),
        WeightSums: (False, True),
        Silent: (False, False),
        StillSilent: (False, False),
        Loud: (True, True),
    }
    layer, x = MultiHeadAttention(8, 2), torch.randn(2, 5, 8)
    before = layer(x)
    layer.positions = NearBias()
    assert (layer(x) - before).abs().max() > 1e-3
