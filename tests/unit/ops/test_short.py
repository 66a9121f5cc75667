"""The kernel for short sequences: `test_attention.py` has it among all paths; this is what it promises beyond."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import regard
from regard.native import kernels
from regard.ops import KeyLengths
from regard.ops.masks import kernel_mask
from regard.ops.short import is_short

pytestmark = pytest.mark.skipif(kernels() is None, reason="the kernels were not built: there was no compiler")


def drawn(B: int, H: int, T: int, K: int) -> Tensor:
    """Queries, keys or values as projections give them."""
    return torch.randn(B, T, H, K).transpose(1, 2).requires_grad_()


def taken(query: Tensor, key: Tensor, value: Tensor, causal: bool = False, allowed: Tensor | None = None) -> bool:
    return is_short(query, key, value, causal, allowed)


def test_it_takes_what_training_on_sentences_has_and_leaves_the_rest() -> None:
    x = drawn(2, 4, 17, 32)
    assert taken(x, x, x)
    assert taken(x, x, x, causal=True)
    _, allowed = kernel_mask(KeyLengths(torch.tensor([3, 17])), 17, 17, x.device)
    assert taken(x, x, x, allowed=allowed)
    assert not taken(x, x, x, allowed=torch.ones(2, 1, 17, 17, dtype=torch.bool))
    assert not taken(x, drawn(2, 4, 18, 32), drawn(2, 4, 18, 32), causal=True)
    assert not taken(x.double(), x.double(), x.double())
    assert not taken(x.bfloat16(), x.bfloat16(), x.bfloat16())
    for other in (drawn(2, 4, 65, 32), drawn(2, 4, 17, 12), x.transpose(2, 3), x.to("meta"), x[:0], torch._neg_view(x)):
        assert not taken(other, other, other)
    for other in (x[:1], x[:, :3], drawn(2, 4, 17, 40)):  # nothing is broadcast, and all of it fits
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
    query, key, value = drawn(B, G * shared, T, K), drawn(B, G, S, K), drawn(B, G, S, V)
    allowed = torch.rand(B, 1, 1, S) < 0.7
    assert taken(query, key, value, causal, allowed)
    output = regard.attention(query, key, value, allowed, causal=causal)
    q, k, v = doubles = [x.detach().double().requires_grad_() for x in (query, key, value)]
    expected, _ = regard.attention(q, k, v, allowed, causal=causal, return_weights=True)  # the explicit path
    direction = torch.randn(expected.shape)
    changes = torch.autograd.grad(output, (query, key, value), direction)
    wanted = torch.autograd.grad(expected + sum(x.sum() * 0 for x in doubles), doubles, direction.double())
    for ours, reference in zip((output, *changes), (expected, *wanted), strict=True):
        # What cancels out is as large as products of V numbers.
        largest = max(V**0.5, float(reference.detach().abs().max()))
        assert (ours.double() - reference).abs().max() <= 2e-6 * largest


@pytest.mark.parametrize("causal", [False, True])
def test_padding_neighbours_and_threads_change_no_bit(causal: bool) -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([5, 23, 1, 16] * 16)
    query, key, value = (drawn(64, 4, 23, 32) for _ in range(3))
    direction = torch.randn(64, 4, 23, 32)
    real = (torch.arange(23) < lengths[:, None])[:, None, :, None]
    together = regard.attention(query, key, value, KeyLengths(lengths), causal=causal)
    gradients = torch.autograd.grad(together, (query, key, value), direction * real)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        again = regard.attention(query, key, value, KeyLengths(lengths), causal=causal)
        assert torch.equal(together, again)
        assert all(map(torch.equal, gradients, torch.autograd.grad(again, (query, key, value), direction * real)))
    finally:
        torch.set_num_threads(before)
    for row, length in enumerate(lengths[:4].tolist()):
        alone = [x[row : row + 1, :, :length].detach().requires_grad_() for x in (query, key, value)]
        output = regard.attention(*alone, causal=causal)
        assert torch.equal(output[0], together[row, :, :length])
        changes = torch.autograd.grad(output, alone, direction[row : row + 1, :, :length])
        for one, every in zip(changes, gradients, strict=True):
            assert torch.equal(one[0], every[row, :, :length])
            assert not every[row, :, length:].any()


@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_is_not_a_number_stays_so(which: int) -> None:
    given = [torch.randn(1, 1, 9, 8) for _ in range(3)]
    given[which][0, 0, 4, 3] = torch.nan
    output = regard.attention(given[0], given[1], given[2])
    assert output[0, 0, 4].isnan().any()
    assert output.isnan().any(-1).sum() == (1 if which == 0 else 9)


def test_functions_are_transformed_all_the_same() -> None:
    query = torch.randn(3, 2, 9, 8)

    def summed(x: Tensor) -> Tensor:
        return regard.attention(x, x, x, causal=True).square().sum()

    expected = torch.autograd.functional.jacobian(summed, query)
    torch.testing.assert_close(torch.func.grad(summed)(query), expected, rtol=1e-5, atol=1e-4)
    each = torch.func.vmap(summed)(query[:, None])
    torch.testing.assert_close(each.sum(), summed(query))


def test_gradients_come_for_many_directions_at_once() -> None:
    query, key, value = drawn(2, 4, 9, 16), drawn(2, 2, 9, 16), drawn(2, 2, 9, 8)
    output = regard.attention(query, key, value, torch.rand(2, 1, 1, 9) < 0.6, causal=True)
    directions = torch.randn(3, *output.shape)
    together = torch.autograd.grad(output, (query, key, value), directions, retain_graph=True, is_grads_batched=True)
    for number, direction in enumerate(directions):
        alone = torch.autograd.grad(output, (query, key, value), direction, retain_graph=True)
        for many, one in zip(together, alone, strict=True):
            torch.testing.assert_close(many[number], one, rtol=1e-4, atol=1e-5)


def test_what_is_saved_may_be_put_away_and_computed_again() -> None:
    query, key, value = leaves = [drawn(3, 2, 9, 16) for _ in range(3)]
    direction = torch.randn(3, 2, 9, 16)
    expected = torch.autograd.grad(regard.attention(query, key, value), leaves, direction)
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone):
        output = regard.attention(query, key, value)
    assert all(map(torch.equal, torch.autograd.grad(output, leaves, direction), expected))
    output = checkpoint(regard.attention, query, key, value, use_reentrant=False)
    assert all(map(torch.equal, torch.autograd.grad(output, leaves, direction), expected))


def test_defaults_for_new_tensors_change_nothing() -> None:
    x = drawn(2, 4, 9, 16)
    expected = regard.attention(x, x, x)
    with torch.device("meta"):
        assert torch.equal(regard.attention(x, x, x), expected)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(regard.attention(x, x, x), expected)
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_trace_has_something_to_compute() -> None:
    query = torch.randn(2, 4, 9, 16)
    traced = make_fx(lambda x: regard.attention(x, x, x))(query)
    torch.testing.assert_close(traced(2 * query), regard.attention(2 * query, 2 * query, 2 * query))


def test_a_gradient_of_any_layout_is_read() -> None:
    x = drawn(2, 4, 9, 16)
    ones = torch.autograd.grad(regard.attention(x, x, x), x, torch.ones(2, 4, 9, 16))[0]
    assert torch.equal(torch.autograd.grad(regard.attention(x, x, x).sum(), x)[0], ones)
    negative = torch._neg_view(-torch.ones(2, 4, 9, 16))
    assert torch.equal(torch.autograd.grad(regard.attention(x, x, x), x, negative)[0], ones)


def test_gradients_have_gradients() -> None:
    """As for a penalty on the gradient: what comes back is a constant, and what was saved is not."""
    query, key, value = (drawn(2, 2, 5, 8) for _ in range(3))
    weights = torch.randn(2, 2, 5, 8)

    def penalised(weights: Tensor, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        if query.dtype == torch.float64:  # step by step: torch's fused one has no second derivatives
            output, _ = regard.attention(query, key, value, causal=True, return_weights=True)
        else:
            output = regard.attention(query, key, value, causal=True)
        loss = (output * weights).sum()
        penalty = sum(gradient.pow(2).sum() for gradient in torch.autograd.grad(loss, (query, key), create_graph=True))
        return torch.autograd.grad(loss + penalty, (query, key, value))

    assert taken(query, key, value, causal=True)
    found = penalised(weights, query, key, value)
    wide = (x.detach().double().requires_grad_() for x in (query, key, value))
    for mine, right in zip(found, penalised(weights.double(), *wide), strict=True):
        torch.testing.assert_close(mine.double(), right, atol=1e-4, rtol=1e-4)
