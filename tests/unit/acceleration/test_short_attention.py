"""The kernel for short sequences: `test_attention.py` has it among all paths; this is what it promises beyond."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import regard
from regard.kernels.bindings import kernels
from regard.ops import KeyLengths
from regard.ops.masks import SameSentence, Sentences, kernel_mask
from regard.ops.short import are_short, is_short

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
def test_padding_neighbors_and_threads_change_no_bit(causal: bool) -> None:
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


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=6),
    st.booleans(),
    st.tuples(st.sampled_from([8, 24]), st.sampled_from([8, 16]), st.integers(1, 2), st.integers(1, 2)),
    st.integers(0, 2**31),
)
def test_sentences_behind_one_another_do_not_see_each_other(
    lengths: list[tuple[int, int]], causal: bool, widths: tuple[int, int, int, int], seed: int
) -> None:
    torch.manual_seed(seed)
    K, V, G, shared = widths
    queries = Sentences.of(torch.tensor([t for t, _ in lengths]))
    keys = queries if causal else Sentences.of(torch.tensor([s for _, s in lengths]))
    mask = SameSentence(queries, keys)
    query, key, value = drawn(1, G * shared, queries.size, K), drawn(1, G, keys.size, K), drawn(1, G, keys.size, V)
    if queries.size and keys.size:
        assert are_short(query, key, value, causal, mask)
    output = regard.attention(query, key, value, mask, causal=causal)
    q, k, v = doubles = [x.detach().double().requires_grad_() for x in (query, key, value)]
    expected, _ = regard.attention(q, k, v, mask, causal=causal, return_weights=True)  # the explicit path
    direction = torch.randn(expected.shape)
    changes = torch.autograd.grad(
        output + sum(x.sum() * 0 for x in (query, key, value)), (query, key, value), direction
    )
    wanted = torch.autograd.grad(expected + sum(x.sum() * 0 for x in doubles), doubles, direction.double())
    for ours, reference in zip((output, *changes), (expected, *wanted), strict=True):
        largest = max([V**0.5, *reference.detach().abs().flatten().tolist()])
        assert ours.numel() == 0 or (ours.double() - reference).abs().max() <= 2e-6 * largest


def test_sentences_behind_one_another_give_the_bits_of_a_padded_batch() -> None:
    lengths = torch.tensor([5, 23, 1, 16])
    real = torch.arange(23) < lengths[:, None]
    sentences = Sentences.of(lengths)
    query, key, value = (drawn(4, 4, 23, 32) for _ in range(3))
    direction = torch.randn(4, 4, 23, 32) * real[:, None, :, None]

    def in_one_row(x: Tensor) -> Tensor:
        return x.transpose(1, 2)[real][None].transpose(1, 2)

    for causal in (False, True):
        padded = regard.attention(query, key, value, KeyLengths(lengths), causal=causal)
        parts = in_one_row(query), in_one_row(key), in_one_row(value)
        row = regard.attention(*parts, SameSentence(sentences, sentences), causal=causal)
        assert row.equal(in_one_row(padded))
        expected = torch.autograd.grad(padded, (query, key, value), direction)
        found = torch.autograd.grad(row, (query, key, value), in_one_row(direction))
        for ours, reference in zip(found, expected, strict=True):
            assert in_one_row(ours).equal(in_one_row(reference))


def test_of_sentences_behind_one_another_it_leaves_what_is_long_and_what_is_not_in_order() -> None:
    x, sentences = drawn(1, 2, 70, 8), Sentences.of(torch.tensor([60, 10]))
    others = Sentences.of(torch.tensor([10, 60]))
    assert are_short(x, x, x, False, SameSentence(sentences, others))
    assert not are_short(x, x, x, True, SameSentence(sentences, others))
    assert not are_short(x, x, x, False, SameSentence(sentences, Sentences.of(torch.tensor([65, 5]))))
    assert not are_short(x.double(), x.double(), x.double(), False, SameSentence(sentences, sentences))
    earlier = torch.ones(70, 70, dtype=torch.bool).tril()
    for causal, mask in ((True, SameSentence(sentences, others)), (False, SameSentence(sentences, others) | earlier)):
        output = regard.attention(x, x, x, mask, causal=causal)
        expected, _ = regard.attention(x, x, x, mask, causal=causal, return_weights=True)
        torch.testing.assert_close(output, expected)


def test_gradients_of_gradients_know_sentences_too() -> None:
    sentences = Sentences.of(torch.tensor([3, 0, 2]))
    query, key, value = (drawn(1, 2, 5, 8) for _ in range(3))
    changes = []
    for path in ("kernel", "explicit"):
        mask = SameSentence(sentences, sentences)
        output = regard.attention(query, key, value, mask, causal=True)
        if path == "explicit":
            output, _ = regard.attention(query, key, value, mask, causal=True, return_weights=True)
        (first,) = torch.autograd.grad(output.square().sum(), query, create_graph=True)
        changes.append(torch.autograd.grad(first.square().sum(), (query, key, value)))
    for ours, expected in zip(*changes, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)
