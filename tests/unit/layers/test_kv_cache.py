import torch

from regard.layers import KeyValue, KeyValueCache


def positions(start: int, stop: int) -> KeyValue:
    """Keys and values that say which position they are."""
    numbers = torch.arange(start, stop, dtype=torch.float32).view(1, 1, -1, 1).expand(2, 1, -1, 1)
    return KeyValue(numbers, -numbers)


def test_it_grows_and_keeps_what_it_has() -> None:
    cache = KeyValueCache()
    for start in range(0, 60, 5):
        kept, _ = cache.append(positions(start, start + 5))
        assert kept.key_BGSK[1, 0, :, 0].tolist() == list(range(start + 5))
        assert kept.value_BGSV[0, 0, :, 0].tolist() == [-n for n in range(start + 5)]
    assert cache.lengths_B.tolist() == [60, 60]


def test_rows_of_different_lengths_overwrite_their_padding() -> None:
    cache = KeyValueCache()
    cache.append(positions(0, 3), torch.tensor([1, 3]))
    assert cache.lengths_B.tolist() == [1, 3]
    kept, mask = cache.append(positions(10, 12))
    assert kept.key_BGSK[0, 0, :3, 0].tolist() == [0, 10, 11]
    assert kept.key_BGSK[1, 0, :, 0].tolist() == [0, 1, 2, 10, 11]
    assert mask.dense(2, 5)[0, 0].tolist() == [[True, True, False, False, False], [True, True, True, False, False]]


def test_rows_that_become_even_again_need_no_mask_of_their_own() -> None:
    cache = KeyValueCache()
    cache.append(positions(0, 3), torch.tensor([1, 3]))
    assert isinstance(cache.offset, torch.Tensor)
    cache.select(torch.tensor([1, 1, 1]))
    assert cache.offset == 3
    cache.select(torch.tensor([], dtype=torch.int64))
    assert cache.lengths_B.tolist() == []


def test_what_is_kept_carries_no_gradient() -> None:
    cache = KeyValueCache()
    x = torch.randn(1, 1, 2, 3, requires_grad=True)
    kept, _ = cache.append(KeyValue(x, x))
    assert not kept.key_BGSK.requires_grad
