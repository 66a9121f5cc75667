import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import regard
from regard.errors import InputError
from regard.layers import KeyValue, KeyValueCache, SourceCache


def positions(start: int, stop: int, rows: int = 2) -> KeyValue:
    """Keys and values that say which position they are."""
    numbers = torch.arange(start, stop, dtype=torch.float32).view(1, 1, -1, 1).expand(rows, 1, -1, 1)
    return KeyValue(numbers, -numbers)


def test_it_grows_and_keeps_what_it_has() -> None:
    cache = KeyValueCache()
    for start in range(0, 60, 5):
        kept, _, _ = cache.append(positions(start, start + 5))
        assert kept.key_BGSK[1, 0, :, 0].tolist() == list(range(start + 5))
        assert kept.value_BGSV[0, 0, :, 0].tolist() == [-n for n in range(start + 5)]
    assert cache.lengths.tolist() == [60, 60]


@pytest.mark.parametrize("counts", [[1, 3], np.array([1, 3]), torch.tensor([1, 3])], ids=["list", "numpy", "torch"])
def test_rows_of_different_lengths_overwrite_their_padding(counts: list[int]) -> None:
    cache = KeyValueCache()
    cache.expect(2, 3, counts)
    cache.append(positions(0, 3))
    assert cache.lengths.tolist() == [1, 3]
    kept, mask, _ = cache.append(positions(10, 12))
    assert kept.key_BGSK[0, 0, :3, 0].tolist() == [0, 10, 11]
    assert kept.key_BGSK[1, 0, :, 0].tolist() == [0, 1, 2, 10, 11]
    assert mask.dense(2, 5)[0, 0].tolist() == [[True, True, False, False, False], [True, True, True, False, False]]


def test_rows_that_become_even_again_need_no_mask_of_their_own() -> None:
    cache = KeyValueCache()
    cache.expect(2, 3, [1, 3])
    cache.append(positions(0, 3))
    assert isinstance(cache.offset, np.ndarray)
    cache.keep([1, 1, 1])
    assert cache.offset == 3
    cache.keep([])
    assert cache.lengths.tolist() == []


def test_what_is_kept_carries_no_gradient() -> None:
    cache = KeyValueCache()
    x = torch.randn(1, 1, 2, 3, requires_grad=True)
    kept, _, _ = cache.append(KeyValue(x, x))
    assert not kept.key_BGSK.requires_grad


def test_an_empty_cache_takes_in_another_and_is_reordered_without_effect() -> None:
    cache, other = KeyValueCache(), KeyValueCache()
    cache.reorder([1, 0])
    other.expect(2, 3, [1, 3])
    other.append(positions(0, 3))
    cache.admit(KeyValueCache())
    cache.admit(other)
    assert cache.lengths.tolist() == [1, 3]
    cache.admit(KeyValueCache())
    assert cache.lengths.tolist() == [1, 3]


def test_rows_that_are_admitted_stand_behind_those_that_are_there() -> None:
    cache, other = KeyValueCache(), KeyValueCache()
    cache.append(positions(0, 20))
    other.append(positions(30, 32, rows=1))
    cache.admit(other)
    assert cache.lengths.tolist() == [20, 20, 2]
    kept, mask, _ = cache.append(positions(50, 51, rows=3))
    assert kept.key_BGSK[0, 0, :, 0].tolist() == [*range(20), 50]
    assert kept.key_BGSK[2, 0, :3, 0].tolist() == [30, 31, 50]
    assert mask.dense(1, 21)[2, 0, 0].tolist() == 3 * [True] + 18 * [False]


def test_what_does_not_fit_is_told_and_changes_nothing() -> None:
    cache = KeyValueCache()
    with pytest.raises(InputError, match="the cache is empty"):
        _ = cache.lengths
    cache.append(positions(0, 2))
    with pytest.raises(InputError, match="the cache holds 2 rows and was given 3 new ones"):
        cache.append(positions(2, 3, rows=3))
    with pytest.raises(InputError, match="row 1 is said to have 5 real positions, of the 1 it was given"):
        cache.expect(2, 1, [1, 5])
    assert cache.lengths.tolist() == [2, 2]


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.booleans(), st.integers(0, 99))
def test_beams_attend_to_their_source_as_if_each_had_its_own(
    B: int, beams: int, T: int, S: int, masked: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    layer = regard.MultiHeadAttention(8, 4, num_kv_heads=2).eval()
    source_BSD, query_RTD = torch.randn(B, S, 8), torch.randn(B * beams, T, 8)
    mask = torch.rand(B, 1, 1, S) < 0.7 if masked else None
    cache = layer.start_source_cache(source_BSD, mask, beams=beams)
    repeated = None if mask is None else mask.repeat_interleave(beams, 0)
    expected = layer(query_RTD, source_BSD.repeat_interleave(beams, 0), mask=repeated, return_weights=True)
    torch.testing.assert_close(layer(query_RTD, cache=cache, return_weights=True), expected)
    torch.testing.assert_close(layer(query_RTD, cache=cache), expected[0])


@given(st.integers(1, 3), st.sampled_from(["T", "BT", "BHT", "S", "BS"]), st.integers(0, 99))
def test_a_mask_and_a_bias_go_together_with_a_source_cache(beams: int, axes: str, seed: int) -> None:
    """A changed layer may add them to every call."""
    torch.manual_seed(seed)
    B, H, T, S = 2, 4, 3, 5
    layer = regard.MultiHeadAttention(8, H).eval()
    source_BSD, query_RTD, hidden = torch.randn(B, S, 8), torch.randn(B * beams, T, 8), torch.rand(B, 1, 1, S) < 0.7
    shape = [B * beams if "B" in axes else 1, H if "H" in axes else 1, T if "T" in axes else 1, S]
    mask, bias = torch.rand(shape) < 0.7, torch.randn(shape)
    if "B" not in axes:
        mask, bias = mask[0, 0], bias[0, 0]
    repeated = hidden.repeat_interleave(beams, 0)
    expected = layer(query_RTD, source_BSD.repeat_interleave(beams, 0), mask=mask & repeated, bias=bias)
    cache = layer.start_source_cache(source_BSD, hidden, beams=beams)
    torch.testing.assert_close(layer(query_RTD, cache=cache, mask=mask, bias=bias), expected)
    unmasked = layer.start_source_cache(source_BSD, beams=beams)
    torch.testing.assert_close(layer(query_RTD, cache=unmasked, mask=mask & repeated, bias=bias), expected)


def test_sources_of_different_lengths_are_kept_and_admitted() -> None:
    layer = regard.MultiHeadAttention(8, 2).eval()
    first, second = torch.randn(2, 5, 8), torch.randn(1, 7, 8)
    cache = layer.start_source_cache(first, beams=2)
    cache.admit(layer.start_source_cache(second, torch.tensor([True] * 6 + [False]).view(1, 1, 1, 7), beams=2))
    query = torch.randn(6, 1, 8)

    def alone(source: Tensor, row: int) -> Tensor:
        output: Tensor = layer(query[row : row + 1], source)
        return output[0]

    sources = [first[:1], first[:1], first[1:], first[1:], second[:, :6], second[:, :6]]
    expected = torch.stack([alone(source, row) for row, source in enumerate(sources)])
    torch.testing.assert_close(layer(query, cache=cache), expected)
    cache.reorder([1, 1, 2, 2, 5, 4])  # within a sentence, the source is the same
    torch.testing.assert_close(layer(query, cache=cache), expected)
    cache.keep([4, 5, 0, 1])
    torch.testing.assert_close(layer(query[[4, 5, 0, 1]], cache=cache), expected[[4, 5, 0, 1]])
    with pytest.raises(InputError, match="started with 2 sources and was given 3 rows"):
        layer(query[:3], cache=cache)


def test_keys_may_come_from_elsewhere_than_queries_with_a_cache_too() -> None:
    layer, cache = regard.MultiHeadAttention(8, 2).eval(), KeyValueCache()
    query, key, value = torch.randn(3, 2, 4, 8)
    steps = [
        layer(query[:, t : t + 1], key[:, t : t + 1], value[:, t : t + 1], cache=cache) for t in range(query.size(1))
    ]
    torch.testing.assert_close(torch.cat(steps, dim=1), layer(query, key, value, causal=True))


def test_a_cache_of_rows_without_a_source_is_no_source_cache() -> None:
    assert not isinstance(regard.MultiHeadAttention(8, 2).start_cache(), SourceCache)
