"""Decoding step by step gives the logits of the full forward pass, for every configuration."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import Transformer, TransformerConfig
from regard.errors import InputError
from regard.layers import DecoderCache
from tests.strategies import VOCAB, configs, model_of, tokens

with_decoder = configs().filter(lambda config: config.kind != "encoder-only")


def start(model: Transformer, source: Tensor) -> DecoderCache:
    return model.start_cache(model.encode(source) if model.encoder is not None else None)


def full(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    return model.forward(source, target) if model.encoder is not None else model.forward(target)


@settings(max_examples=150)
@given(
    with_decoder, st.lists(st.integers(1, 4), min_size=1, max_size=5), st.sampled_from([torch.float32, torch.float64])
)
@torch.no_grad()
def test_any_way_of_cutting_the_target_gives_the_same(
    config: TransformerConfig, cuts: list[int], dtype: torch.dtype
) -> None:
    model = model_of(config, dtype=dtype)
    source, target = tokens(3, 6, config.source_size), tokens(3, sum(cuts), VOCAB)
    source[1, 4:] = config.pad_id
    expected = full(model, source, target)
    cache = start(model, source)
    steps = [model.logits(model.decode(part, cache=cache)) for part in target.split(cuts, dim=1)]
    tolerance = (1e-5 if dtype == torch.float32 else 1e-12) * max(1.0, expected.abs().max().item())
    assert (torch.cat(steps, dim=1) - expected).abs().max() <= tolerance


@settings(max_examples=100)
@given(with_decoder, st.lists(st.integers(1, 5), min_size=2, max_size=4), st.integers(0, 1000))
@torch.no_grad()
def test_rows_of_different_lengths_come_and_go(config: TransformerConfig, prefixes: list[int], seed: int) -> None:
    """Each row starts with a prefix of its own length; rows are then reordered, repeated and dropped between steps."""
    model = model_of(config, seed)
    B, longest, extra = len(prefixes), max(prefixes), 4
    source, target = tokens(B, 6, config.source_size), tokens(B, longest + extra, VOCAB)
    source[0, 3:] = config.pad_id
    expected = full(model, source, target)
    scale = max(1.0, expected.abs().max().item())

    cache, at, row_of = start(model, source), torch.tensor(prefixes), torch.arange(B)
    first = model.logits(model.decode(target[:, :longest], cache=cache, lengths=at))
    for row, length in enumerate(prefixes):
        assert (first[row, :length] - expected[row, :length]).abs().max() <= 1e-12 * scale
    for _ in range(extra):
        step = model.logits(model.decode(target[row_of, at][:, None], cache=cache))
        assert (step[:, 0] - expected[row_of, at]).abs().max() <= 1e-12 * scale
        at = at + 1
        chosen = torch.randint(0, len(row_of), (max(1, len(row_of) - 1 + seed % 3),))
        cache.select(chosen)
        at, row_of = at[chosen], row_of[chosen]


def test_what_does_not_fit_a_cache_is_told() -> None:
    model = model_of(TransformerConfig.preset("tiny", vocab_size=VOCAB))
    source, target = tokens(2, 3, VOCAB), tokens(2, 3, VOCAB)
    memory = model.encode(source)
    cache = model.start_cache(memory)
    with pytest.raises(InputError, match="a memory and a cache"):
        model.decode(target, memory, cache=cache)
    with pytest.raises(InputError, match="empty"):
        _ = cache.past.lengths_B
    model.decode(target, cache=cache)
    assert cache.past.lengths_B.tolist() == [3, 3]
    with pytest.raises(InputError, match="holds 2 rows and was given 1"):
        model.decode(target[:1], cache=cache)
    with pytest.raises(InputError, match="no memory"):
        model.start_cache()
