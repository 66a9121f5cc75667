"""The attention kernel for short sequences, against the reference path in float64."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import regard
from regard.acceleration.attention import KernelAttention
from regard.acceleration.kernel_attention import fits_kernel, fits_varlen
from regard.acceleration.varlen import SameSequence, Sequences
from regard.kernels.bindings import kernels
from regard.layers import KeyValue
from regard.ops import Causal, KeyLengths, Mask
from regard.ops.masks import as_mask, kernel_mask

pytestmark = pytest.mark.skipif(kernels() is None, reason="the kernels were not built: there was no compiler")


LAYER = KernelAttention(8, 1)  # its heads take queries, keys and values of any width


def random_heads(B: int, H: int, T: int, K: int) -> Tensor:
    """Queries, keys or values as projections give them."""
    return torch.randn(B, T, H, K).transpose(1, 2).requires_grad_()


def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask | Tensor | None = None, *, causal: bool = False
) -> Tensor:
    """Attention as the accelerated layer computes it between its projections."""
    if causal:
        mask = Causal() if mask is None else as_mask(mask) & Causal()
    return LAYER.heads(query, KeyValue(key, value), mask, None)[0]


def taken(query: Tensor, key: Tensor, value: Tensor, causal: bool = False, allowed: Tensor | None = None) -> bool:
    return fits_kernel(query, key, value, causal, allowed)


def test_it_takes_what_training_on_sequences_has_and_leaves_the_rest() -> None:
    x = random_heads(2, 4, 17, 32)
    assert taken(x, x, x)
    assert taken(x, x, x, causal=True)
    _, allowed = kernel_mask(KeyLengths(torch.tensor([3, 17])), 17, 17, x.device)
    assert taken(x, x, x, allowed=allowed)
    assert not taken(x, x, x, allowed=torch.ones(2, 1, 17, 17, dtype=torch.bool))
    assert not taken(x, random_heads(2, 4, 18, 32), random_heads(2, 4, 18, 32), causal=True)
    assert not taken(x.double(), x.double(), x.double())
    assert not taken(x.bfloat16(), x.bfloat16(), x.bfloat16())
    for other in (
        random_heads(2, 4, 65, 32),
        random_heads(2, 4, 17, 12),
        x.transpose(2, 3),
        x.to("meta"),
        x[:0],
        torch._neg_view(x),
    ):
        assert not taken(other, other, other)
    for other in (x[:1], x[:, :3], random_heads(2, 4, 17, 40)):  # nothing is broadcast, and all of it fits
        assert not taken(x, other, other)
    assert not taken(x, x, x[:, :2])


@given(
    st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 2)),
    st.tuples(st.integers(1, 64), st.integers(1, 64)),
    st.tuples(st.sampled_from([8, 24, 32]), st.sampled_from([8, 16, 64])),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_it_gives_the_reference_for_all_shapes_that_it_takes(
    heads: tuple[int, int, int], lengths: tuple[int, int], widths: tuple[int, int], causal: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    (B, G, shared), (T, S), (K, V) = heads, lengths, widths
    S = T if causal else S
    query, key, value = random_heads(B, G * shared, T, K), random_heads(B, G, S, K), random_heads(B, G, S, V)
    allowed = torch.rand(B, 1, 1, S) < 0.7
    assert taken(query, key, value, causal, allowed)
    output = attention(query, key, value, allowed, causal=causal)
    q, k, v = doubles = [x.detach().double().requires_grad_() for x in (query, key, value)]
    expected, _ = regard.attention(q, k, v, allowed, causal=causal, return_weights=True)  # the reference path
    direction = torch.randn(expected.shape)
    gradients = torch.autograd.grad(output, (query, key, value), direction)
    wanted = torch.autograd.grad(expected + sum(x.sum() * 0 for x in doubles), doubles, direction.double())
    for ours, reference in zip((output, *gradients), (expected, *wanted), strict=True):
        # What cancels out is as large as products of V numbers.
        largest = max(V**0.5, float(reference.detach().abs().max()))
        assert (ours.double() - reference).abs().max() <= 2e-6 * largest


@pytest.mark.parametrize("causal", [False, True])
def test_padding_neighbors_and_threads_change_no_bit(causal: bool) -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([5, 23, 1, 16] * 16)
    query, key, value = (random_heads(64, 4, 23, 32) for _ in range(3))
    direction = torch.randn(64, 4, 23, 32)
    real = (torch.arange(23) < lengths[:, None])[:, None, :, None]
    together = attention(query, key, value, KeyLengths(lengths), causal=causal)
    gradients = torch.autograd.grad(together, (query, key, value), direction * real)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        again = attention(query, key, value, KeyLengths(lengths), causal=causal)
        assert torch.equal(together, again)
        assert all(map(torch.equal, gradients, torch.autograd.grad(again, (query, key, value), direction * real)))
    finally:
        torch.set_num_threads(before)
    for row, length in enumerate(lengths[:4].tolist()):
        alone = [x[row : row + 1, :, :length].detach().requires_grad_() for x in (query, key, value)]
        output = attention(*alone, causal=causal)
        assert torch.equal(output[0], together[row, :, :length])
        alone_gradients = torch.autograd.grad(output, alone, direction[row : row + 1, :, :length])
        for one, every in zip(alone_gradients, gradients, strict=True):
            assert torch.equal(one[0], every[row, :, :length])
            assert not every[row, :, length:].any()


@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_is_not_a_number_stays_so(which: int) -> None:
    given = [torch.randn(1, 1, 9, 8) for _ in range(3)]
    given[which][0, 0, 4, 3] = torch.nan
    output = attention(given[0], given[1], given[2])
    assert output[0, 0, 4].isnan().any()
    assert output.isnan().any(-1).sum() == (1 if which == 0 else 9)


def test_functions_are_transformed_all_the_same() -> None:
    query = torch.randn(3, 2, 9, 8)

    def summed(x: Tensor) -> Tensor:
        return attention(x, x, x, causal=True).square().sum()

    expected = torch.autograd.functional.jacobian(summed, query)
    torch.testing.assert_close(torch.func.grad(summed)(query), expected, rtol=1e-5, atol=1e-4)
    each = torch.func.vmap(summed)(query[:, None])
    torch.testing.assert_close(each.sum(), summed(query))


def test_gradients_come_for_many_directions_at_once() -> None:
    query, key, value = random_heads(2, 4, 9, 16), random_heads(2, 2, 9, 16), random_heads(2, 2, 9, 8)
    output = attention(query, key, value, torch.rand(2, 1, 1, 9) < 0.6, causal=True)
    directions = torch.randn(3, *output.shape)
    together = torch.autograd.grad(output, (query, key, value), directions, retain_graph=True, is_grads_batched=True)
    for number, direction in enumerate(directions):
        alone = torch.autograd.grad(output, (query, key, value), direction, retain_graph=True)
        for many, one in zip(together, alone, strict=True):
            torch.testing.assert_close(many[number], one, rtol=1e-4, atol=1e-5)


def test_what_is_saved_may_be_put_away_and_computed_again() -> None:
    query, key, value = leaves = [random_heads(3, 2, 9, 16) for _ in range(3)]
    direction = torch.randn(3, 2, 9, 16)
    expected = torch.autograd.grad(attention(query, key, value), leaves, direction)
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone):
        output = attention(query, key, value)
    assert all(map(torch.equal, torch.autograd.grad(output, leaves, direction), expected))
    output = checkpoint(attention, query, key, value, use_reentrant=False)
    assert all(map(torch.equal, torch.autograd.grad(output, leaves, direction), expected))


def test_defaults_for_new_tensors_change_nothing() -> None:
    x = random_heads(2, 4, 9, 16)
    expected = attention(x, x, x)
    with torch.device("meta"):
        assert torch.equal(attention(x, x, x), expected)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(attention(x, x, x), expected)
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_trace_has_something_to_compute() -> None:
    query = torch.randn(2, 4, 9, 16)
    traced = make_fx(lambda x: attention(x, x, x))(query)
    torch.testing.assert_close(traced(2 * query), attention(2 * query, 2 * query, 2 * query))


def test_a_gradient_of_any_layout_is_read() -> None:
    x = random_heads(2, 4, 9, 16)
    ones = torch.autograd.grad(attention(x, x, x), x, torch.ones(2, 4, 9, 16))[0]
    assert torch.equal(torch.autograd.grad(attention(x, x, x).sum(), x)[0], ones)
    negative = torch._neg_view(-torch.ones(2, 4, 9, 16))
    assert torch.equal(torch.autograd.grad(attention(x, x, x), x, negative)[0], ones)


def test_gradients_have_gradients() -> None:
    """As for a penalty on the gradient: what comes back is a constant, and what was saved is not."""
    query, key, value = (random_heads(2, 2, 5, 8) for _ in range(3))
    weights = torch.randn(2, 2, 5, 8)

    def penalised(weights: Tensor, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        if query.dtype == torch.float64:  # step by step: torch's fused one has no second derivatives
            output, _ = regard.attention(query, key, value, causal=True, return_weights=True)
        else:
            output = attention(query, key, value, causal=True)
        loss = (output * weights).sum()
        penalty = sum(gradient.pow(2).sum() for gradient in torch.autograd.grad(loss, (query, key), create_graph=True))
        return torch.autograd.grad(loss + penalty, (query, key, value))

    assert taken(query, key, value, causal=True)
    found = penalised(weights, query, key, value)
    wide = (x.detach().double().requires_grad_() for x in (query, key, value))
    for mine, right in zip(found, penalised(weights.double(), *wide), strict=True):
        torch.testing.assert_close(mine.double(), right, atol=1e-4, rtol=1e-4)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=6),
    st.booleans(),
    st.tuples(st.sampled_from([8, 24]), st.sampled_from([8, 16]), st.integers(1, 2), st.integers(1, 2)),
    st.integers(0, 2**31),
)
def test_sequences_behind_one_another_do_not_see_each_other(
    lengths: list[tuple[int, int]], causal: bool, widths: tuple[int, int, int, int], seed: int
) -> None:
    torch.manual_seed(seed)
    K, V, G, shared = widths
    queries = Sequences.of(torch.tensor([t for t, _ in lengths]))
    keys = queries if causal else Sequences.of(torch.tensor([s for _, s in lengths]))
    mask = SameSequence(queries, keys)
    query, key, value = (
        random_heads(1, G * shared, queries.size, K),
        random_heads(1, G, keys.size, K),
        random_heads(1, G, keys.size, V),
    )
    if queries.size and keys.size:
        assert fits_varlen(query, key, value, causal, mask)
    output = attention(query, key, value, mask, causal=causal)
    q, k, v = doubles = [x.detach().double().requires_grad_() for x in (query, key, value)]
    expected, _ = regard.attention(q, k, v, mask, causal=causal, return_weights=True)  # the reference path
    direction = torch.randn(expected.shape)
    gradients = torch.autograd.grad(
        output + sum(x.sum() * 0 for x in (query, key, value)), (query, key, value), direction
    )
    wanted = torch.autograd.grad(expected + sum(x.sum() * 0 for x in doubles), doubles, direction.double())
    for ours, reference in zip((output, *gradients), (expected, *wanted), strict=True):
        largest = max([V**0.5, *reference.detach().abs().flatten().tolist()])
        assert ours.numel() == 0 or (ours.double() - reference).abs().max() <= 2e-6 * largest


def test_sequences_behind_one_another_give_the_bits_of_a_padded_batch() -> None:
    lengths = torch.tensor([5, 23, 1, 16])
    real = torch.arange(23) < lengths[:, None]
    sequences = Sequences.of(lengths)
    query, key, value = (random_heads(4, 4, 23, 32) for _ in range(3))
    direction = torch.randn(4, 4, 23, 32) * real[:, None, :, None]

    def in_one_row(x: Tensor) -> Tensor:
        return x.transpose(1, 2)[real][None].transpose(1, 2)

    for causal in (False, True):
        padded = attention(query, key, value, KeyLengths(lengths), causal=causal)
        parts = in_one_row(query), in_one_row(key), in_one_row(value)
        row = attention(*parts, SameSequence(sequences, sequences), causal=causal)
        assert row.equal(in_one_row(padded))
        expected = torch.autograd.grad(padded, (query, key, value), direction)
        found = torch.autograd.grad(row, (query, key, value), in_one_row(direction))
        for ours, reference in zip(found, expected, strict=True):
            assert in_one_row(ours).equal(in_one_row(reference))


def test_of_sequences_behind_one_another_it_leaves_what_is_long_and_what_is_not_in_order() -> None:
    x, sequences = random_heads(1, 2, 70, 8), Sequences.of(torch.tensor([60, 10]))
    others = Sequences.of(torch.tensor([10, 60]))
    assert fits_varlen(x, x, x, False, SameSequence(sequences, others))
    assert not fits_varlen(x, x, x, True, SameSequence(sequences, others))
    assert not fits_varlen(x, x, x, False, SameSequence(sequences, Sequences.of(torch.tensor([65, 5]))))
    assert not fits_varlen(x.double(), x.double(), x.double(), False, SameSequence(sequences, sequences))
    earlier = torch.ones(70, 70, dtype=torch.bool).tril()
    for causal, mask in ((True, SameSequence(sequences, others)), (False, SameSequence(sequences, others) | earlier)):
        output = attention(x, x, x, mask, causal=causal)
        expected, _ = regard.attention(x, x, x, mask, causal=causal, return_weights=True)
        torch.testing.assert_close(output, expected)


def test_gradients_of_gradients_know_sequences_too() -> None:
    sequences = Sequences.of(torch.tensor([3, 0, 2]))
    query, key, value = (random_heads(1, 2, 5, 8) for _ in range(3))
    gradients = []
    for path in ("kernel", "reference"):
        mask = SameSequence(sequences, sequences)
        output = attention(query, key, value, mask, causal=True)
        if path == "reference":
            output, _ = regard.attention(query, key, value, mask, causal=True, return_weights=True)
        (first,) = torch.autograd.grad(output.square().sum(), query, create_graph=True)
        gradients.append(torch.autograd.grad(first.square().sum(), (query, key, value)))
    for ours, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def test_a_hidden_score_may_be_infinite() -> None:
    big = torch.full((1, 1, 8, 8), 1e20, requires_grad=True)
    nothing = torch.zeros(1, 1, 1, 8, dtype=torch.bool)
    assert taken(big, big, big, allowed=nothing)
    output = attention(big, big, big, nothing)
    assert output.eq(0.0).all()
    (gradient,) = torch.autograd.grad(output.sum(), big)
    assert gradient.eq(0.0).all()


def test_a_hidden_key_changes_nothing_whatever_it_is() -> None:
    x = torch.ones(1, 1, 3, 8)
    loud = x.clone()
    loud[..., 2, :] = 1e38
    mask = torch.tensor([True, True, False])[None, None, None]
    assert taken(x, loud, x, allowed=mask)
    assert attention(x, loud, x, mask).equal(torch.ones_like(x))


@pytest.mark.parametrize("length", [9, 65])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"mask": regard.causal_mask(65)}, {"bias": torch.ones(())}])
def test_the_layer_computes_what_the_plain_one_does(length: int, options: dict[str, Any]) -> None:
    layer, x = regard.MultiHeadAttention(32, 4, num_kv_heads=2), torch.randn(2, length, 32, requires_grad=True)
    if "mask" in options:
        options = {"mask": options["mask"][:length, :length]}

    def output_and_gradients() -> tuple[Tensor, ...]:
        output = layer(x, **options)
        return output, *torch.autograd.grad(output.sin().sum(), [x, *layer.parameters()])

    expected = output_and_gradients()
    layer.__class__ = KernelAttention
    torch.testing.assert_close(output_and_gradients(), expected, rtol=1e-4, atol=1e-4)
    layer.dropout = 0.5
    assert not layer(x, **options).equal(layer(x, **options))


def test_under_autocast_attention_stays_float32() -> None:
    layer, x = KernelAttention(32, 4), torch.randn(2, 9, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        query, (key, value) = layer.query(x).view(2, 9, 4, 8).transpose(1, 2), layer.project_key_value(x)
        assert query.dtype == torch.bfloat16
        heads, _ = layer.heads(query, KeyValue(key, value), None, None)
    assert heads.dtype == torch.float32
    torch.testing.assert_close(heads, regard.attention(query.float(), key.float(), value.float()))
