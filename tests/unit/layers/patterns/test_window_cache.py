"""A window's cache keeps what the window needs, in constant memory, each row at a place of its own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import InputError, MultiHeadAttention
from regard.layers import AttentionParts, KeyValue
from regard.layers.kv_cache import PastCache
from regard.layers.patterns import BigBird, BlockSparse, Longformer, SlidingWindow
from regard.layers.patterns.window_cache import WindowCache


def attention(pattern: SlidingWindow | BlockSparse) -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(8, 4, num_kv_heads=2, parts=AttentionParts(pattern=pattern)).double().eval()


@settings(max_examples=60)
@given(
    st.integers(1, 5),
    st.integers(0, 3),
    st.lists(
        st.tuples(
            st.integers(1, 9),  # positions
            st.lists(st.integers(0, 9), min_size=3, max_size=3),  # how many of them are real in each row
            st.sampled_from(["", "keep", "admit"]),
        ),
        min_size=1,
        max_size=9,
    ),
    st.integers(0, 99),
)
@torch.no_grad()
def test_rows_at_any_place_attend_as_over_the_whole(
    size: int, sinks: int, steps: list[tuple[int, list[int], str]], seed: int
) -> None:
    """Any number of positions at once, padding on the right, rows repeated, dropped and admitted at other lengths."""
    layer = attention(SlidingWindow(size, sinks=sinks))
    generator = torch.Generator().manual_seed(seed)
    cache = layer.start_cache()
    rows = [torch.empty(0, 8, dtype=torch.float64)] * 3
    for T, counts, after in steps:
        real = [min(count, T) for count in (counts * len(rows))[: len(rows)]]
        new = torch.randn(len(rows), T, 8, dtype=torch.float64, generator=generator)
        cache.expect(len(rows), T, real)
        found = layer(new, cache=cache)
        rows = [torch.cat([row, x[:count]]) for row, x, count in zip(rows, new, real, strict=True)]
        for row, output, count in zip(rows, found, real, strict=True):
            expected = layer(row[None], causal=True)[0, len(row) - count :]
            torch.testing.assert_close(output[:count], expected, rtol=1e-11, atol=1e-11)
        assert cache.lengths.tolist() == [len(row) for row in rows]
        if after == "keep":
            chosen = torch.randint(0, len(rows), (3,), generator=generator).tolist()
            cache.keep(chosen)
            rows = [rows[n] for n in chosen]
        elif after == "admit":
            more = torch.randn(1, 1 + seed % 7, 8, dtype=torch.float64, generator=generator)
            other = layer.start_cache()
            layer(more, cache=other)
            cache.admit(other)
            rows = [*rows, more[0]]


@torch.no_grad()
def test_memory_stays_as_large_as_the_window_and_the_sinks() -> None:
    layer = attention(SlidingWindow(5, sinks=2))
    cache = layer.start_cache()
    assert isinstance(cache, WindowCache)
    for T in (1, 3, 1, 20, 1, 1, 7, 1):
        layer(torch.randn(2, T, 8, dtype=torch.float64), cache=cache)
        assert kept(cache).key_BGSK.size(2) <= 2 + 5 + 1
    assert cache.lengths.tolist() == [35, 35]


def kept(cache: PastCache) -> KeyValue:
    assert isinstance(cache, WindowCache)
    assert cache._kept is not None
    return cache._kept


@torch.no_grad()
def test_a_wide_window_takes_no_more_room_than_a_short_row_needs() -> None:
    layer = attention(SlidingWindow(4096))
    cache = layer.start_cache()
    layer(torch.randn(1, 20, 8, dtype=torch.float64), cache=cache)
    assert kept(cache).key_BGSK.size(2) == 20


@torch.no_grad()
def test_what_is_refused_is_not_taken_in() -> None:
    layer = attention(SlidingWindow(2))
    cache, x = layer.start_cache(), torch.randn(1, 12, 8, dtype=torch.float64)
    expected = layer(x, causal=True)
    layer(x[:, :7], cache=cache)
    for T in (1, 3):
        with pytest.raises(InputError):
            layer(x[:, 7 : 7 + T], mask=torch.ones(3, 3, 3, 3), cache=cache)
    assert cache.lengths.tolist() == [7]
    torch.testing.assert_close(layer(x[:, 7:], cache=cache), expected[:, 7:])


def test_global_tokens_are_kept_as_sinks_and_other_patterns_keep_all() -> None:
    cache = Longformer(3, global_tokens=4).start_cache()
    assert isinstance(cache, WindowCache)
    assert (cache.sinks, cache.ring) == (4, 4)
    assert not isinstance(BigBird().start_cache(), WindowCache)


@torch.no_grad()
def test_a_row_ends_where_the_matrix_of_blocks_does() -> None:
    layer = attention(BlockSparse([[1, 0], [1, 1]], block=2))
    cache, x = layer.start_cache(), torch.randn(2, 4, 8, dtype=torch.float64)
    cache.expect(2, 3, [1, 3])
    layer(x[:, :3], cache=cache)
    cache.expect(2, 3, [3, 1])
    layer(x[:, :3], cache=cache)
    with pytest.raises(InputError, match="5 positions is longer than the pattern, which ends at 4"):
        layer(x[:, :1], cache=cache)
    assert cache.lengths.tolist() == [4, 4]
    with pytest.raises(InputError, match="5 positions is longer"):
        layer(torch.randn(1, 5, 8, dtype=torch.float64))
