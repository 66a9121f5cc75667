"""Every pattern, computed in blocks, is softmax attention under its mask; the masks are those of the papers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.errors import InputError
from regard.layers import KeyValue
from regard.layers.patterns import BigBird, BlockSparse, Longformer, Pattern, SlidingWindow
from regard.layers.positions import ALiBi, RelativePositions
from regard.layers.positions.alibi import alibi_slopes
from regard.layers.softmax_attention import Placement, SoftmaxAttention
from regard.ops import Causal, Mask
from regard.ops.masks import DenseMask


@st.composite
def patterns(draw: st.DrawFn, longest: int = 40) -> Pattern:
    """Draw a pattern with small blocks."""
    block, size = draw(st.integers(1, 9)), draw(st.integers(1, 12))
    kind = draw(st.sampled_from(["window", "longformer", "bigbird", "blocks"]))
    if kind == "window":
        return SlidingWindow(size, sinks=draw(st.integers(0, 6)), block=block)
    if kind == "longformer":
        return Longformer(size, global_tokens=draw(st.integers(1, 6)), block=block)
    counts = st.integers(0, 3)
    if kind == "bigbird":
        return BigBird(
            window_blocks=draw(counts),
            global_blocks=draw(counts),
            random_blocks=draw(counts),
            block=block,
            seed=draw(st.integers(0, 2**31 - 1)),
            layer=draw(st.integers(0, 5)),
        )
    count = -(-longest // block)
    bits = torch.rand(count, count, generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))) < 0.4
    return BlockSparse(bits.int().tolist(), block=block)


def reference(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor, alibi: bool) -> Tensor:
    """Softmax over the allowed keys, a query and a head at a time; zeros where there are none."""
    B, H, T, K = query.shape
    per_group, rows = H // key.size(1), []
    for b in range(B):
        for h in range(H):
            for t in range(T):
                keys = allowed[b, t].nonzero()[:, 0]
                if not len(keys):
                    rows.append(value.new_zeros(value.size(3)))
                    continue
                scores = key[b, h // per_group, keys] @ query[b, h, t] / K**0.5
                if alibi:
                    scores = scores - alibi_slopes(H)[h] * (keys - t).abs()
                rows.append(scores.softmax(0) @ value[b, h // per_group, keys])
    return torch.stack(rows).view(B, H, T, -1)


def random_inputs(B: int, H: int, G: int, T: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((B, H, T, 3), (B, G, T, 3), (B, G, T, 2))
    query, key, value = (torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes)
    return query, key, value


@settings(max_examples=60)
@given(
    patterns(),
    st.sampled_from([(1, 1), (2, 1), (4, 2)]),
    st.integers(1, 40),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 1000),
)
def test_blocks_compute_what_the_mask_says(
    pattern: Pattern, heads: tuple[int, int], T: int, causal: bool, padded: bool, alibi: bool, seed: int
) -> None:
    """Forward and gradients, with padding, causal or not, with fewer key heads, with a bias by position."""
    B, (H, G) = 2, heads
    inputs = random_inputs(B, H, G, T, seed)
    lengths = torch.tensor([T, seed % (T + 1)]) if padded else torch.full((B,), T)
    real = torch.arange(T) < lengths[:, None]
    allowed = pattern.dense(T)[None] & real[:, None, :]
    mask: Mask | None = DenseMask(real[:, None, None, :]) if padded else None
    if causal:
        allowed = allowed & torch.ones(T, T, dtype=torch.bool).tril()
        mask = Causal() if mask is None else mask & Causal()
    positions: RelativePositions | None = ALiBi(H) if alibi else None
    index = torch.arange(T)
    at, results = Placement(index, index, index, index), []
    varied = SoftmaxAttention(3**-0.5, positions, pattern)
    for blocked in (True, False):
        q, k, v = (x.clone().requires_grad_() for x in inputs)
        if blocked:
            output = varied._in_blocks(q, KeyValue(k, v), mask, None, at, pattern.block)
        else:
            output = reference(q, k, v, allowed, alibi)
        weight = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).view_as(output)
        grads = torch.autograd.grad((output * weight).sum() + 0 * q.sum(), (q, k, v), materialize_grads=True)
        results.append([output.detach(), *grads])
    for found, expected in zip(*results, strict=True):
        assert found.isfinite().all()
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    q, k, v = inputs
    dense = varied.dense(q, KeyValue(k, v), mask, None, at)
    torch.testing.assert_close(dense, results[1][0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "pattern",
    [SlidingWindow(50, sinks=3), Longformer(50, global_tokens=3), BigBird()],
    ids=["window", "longformer", "bigbird"],
)
def test_a_long_sequence_goes_by_blocks_and_gives_the_same(pattern: Pattern, causal: bool) -> None:
    """With the blocks that patterns have by themselves, and a last one that is not full."""
    T = 700
    inputs = random_inputs(1, 2, 1, T, 0)
    index = torch.arange(T)
    at, mask, results = Placement(index, index, index, index), Causal() if causal else None, []
    varied = SoftmaxAttention(3**-0.5, pattern=pattern)
    for compute in (varied, varied.dense):
        q, k, v = (x.clone().requires_grad_() for x in inputs)
        output = compute(q, KeyValue(k, v), mask, None, at)
        output.square().sum().backward()
        results.append([output, q.grad, k.grad, v.grad])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@given(patterns(), st.integers(0, 40), st.integers(0, 40))
def test_a_longer_sequence_leaves_the_pattern_of_a_shorter_one(pattern: Pattern, one: int, other: int) -> None:
    """So padding, and with it the rest of the batch, changes nothing."""
    short, long = sorted((one, other))
    assert pattern.dense(long)[:short, :short].equal(pattern.dense(short))


@given(patterns(), st.integers(1, 40))
def test_blocks_cover_the_mask_and_are_whole_where_they_are_said_to_be(pattern: Pattern, T: int) -> None:
    C, count, mask = pattern.block, -(-T // pattern.block), pattern.dense(T)
    covered = torch.zeros(T, T, dtype=torch.bool)
    for number in range(count):
        chosen = list(pattern.key_blocks(number, count))
        assert chosen == sorted(set(chosen))
        assert all(0 <= block < count for block in chosen)
        for block in chosen:
            covered[number * C : (number + 1) * C, block * C : (block + 1) * C] = True
    assert not (mask & ~covered).any()
    if pattern.whole_blocks:
        assert mask.equal(covered)


@given(patterns(), st.integers(1, 3), st.integers(0, 9))
def test_the_mask_of_rows_at_places_of_their_own_is_a_part_of_the_whole(pattern: Pattern, B: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    queries, keys = (torch.randint(0, 40, (B, n), generator=generator) for n in (3, 5))
    found, whole = pattern.allowed(queries, keys), pattern.dense(40)
    assert found.shape == (B, 1, 3, 5)
    for b in range(B):
        assert found[b, 0].equal(whole[queries[b]][:, keys[b]])
    assert pattern.allowed(queries[0], keys)[0, 0].equal(found[0, 0])
    assert pattern.allowed(queries, keys[0])[0, 0].equal(found[0, 0])


def test_a_window_is_as_wide_as_it_says() -> None:
    mask = SlidingWindow(2, sinks=1).dense(9)
    assert mask[6].int().tolist() == [1, 0, 0, 0, 1, 1, 1, 1, 1]
    assert mask[0].int().tolist() == [1, 1, 1, 0, 0, 0, 0, 0, 0]


def test_global_tokens_attend_to_all_and_all_to_them() -> None:
    mask = Longformer(1, global_tokens=2).dense(8)
    assert mask[:2].all()
    assert mask[:, :2].all()
    assert mask[5].int().tolist() == [1, 1, 0, 0, 1, 1, 1, 0]


def test_bigbird_samples_as_many_different_blocks_as_there_are() -> None:
    pattern = BigBird(window_blocks=1, global_blocks=2, random_blocks=3, block=1)
    sampled = pattern.random.sampled(torch.arange(200)).tolist()
    for number, row in enumerate(sampled):
        chosen = [block for block in row if block >= 0]
        assert len(set(chosen)) == len(chosen) == min(3, max(0, number - 1 - 2))
        assert all(2 <= block < number - 1 for block in chosen)


def test_bigbird_samples_evenly_and_anew_for_each_layer_and_seed() -> None:
    numbers = torch.full((1,), 103)
    counts = torch.zeros(100)
    for seed in range(400):
        for layer in range(5):
            random = BigBird(window_blocks=1, global_blocks=2, random_blocks=3, seed=seed, layer=layer).random
            counts[random.sampled(numbers)[0] - 2] += 1
    expected = 400 * 5 * 3 / 100  # 60, with a standard deviation of 7.6
    assert 30 < counts.min() <= counts.max() < 95
    assert counts.sum() == 100 * expected


def test_bigbird_is_the_same_whatever_was_sampled_before() -> None:
    before = BigBird(seed=3, layer=1).dense(900)
    torch.rand(7)
    assert BigBird(seed=3, layer=1).dense(900).equal(before)
    assert not BigBird(seed=4, layer=1).dense(900).equal(before)
    assert not BigBird(seed=3, layer=2).dense(900).equal(before)


def test_a_row_of_blocks_may_be_empty() -> None:
    pattern = BlockSparse([[0, 0], [1, 0]], block=300)
    query, key, value = (x.requires_grad_() for x in random_inputs(1, 1, 1, 600, 0))
    index = torch.arange(600)
    varied = SoftmaxAttention(1.0, pattern=pattern)
    output = varied(query, KeyValue(key, value), None, None, Placement(index, index, index, index))
    output.sum().backward()
    assert not output[:, :, :300].any()
    assert output[:, :, 300:].all()
    assert query.grad is not None
    assert not query.grad[:, :, :300].any()
    assert query.grad.isfinite().all()


def test_what_no_pattern_can_be_is_told() -> None:
    for make, says in (
        (lambda: SlidingWindow(0), "the window is 0"),
        (lambda: SlidingWindow(4, sinks=-1), "sinks is -1"),
        (lambda: SlidingWindow(4, block=0), "block of a pattern is 0"),
        (lambda: Longformer(4, global_tokens=0), "global_tokens is 0"),
        (lambda: BigBird(random_blocks=-1), "random_blocks is -1"),
        (lambda: BlockSparse([]), "no rows"),
        (lambda: BlockSparse([[1, 0], [1]]), "row 2 of the matrix of blocks has 1 values; .* 2 rows is square"),
        (lambda: BlockSparse([[2]]), r"row 1 of the matrix of blocks is \[2\]"),
        (lambda: BlockSparse([[1]], block=8).dense(9), "9 positions is longer than the pattern, which ends at 8"),
    ):
        with pytest.raises(InputError, match=says):
            make()
