"""Decoding step by step gives the logits of the full forward pass, for every configuration."""

from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from regard import Transformer, TransformerConfig
from regard.errors import InputError
from regard.layers import DecoderCache
from tests.strategies import VOCAB, configs, model_of, sparse_configs, tokens

with_decoder = (configs(relative=True) | sparse_configs()).filter(lambda config: config.kind != "encoder-only")


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
        cache.keep(chosen)
        at, row_of = at[chosen], row_of[chosen]


@settings(max_examples=120)
@given(with_decoder, st.integers(1, 3), st.booleans(), st.integers(0, 1000))
@torch.no_grad()
def test_sentences_with_beams_are_admitted_reordered_and_kept(
    config: TransformerConfig, beams: int, expand: bool, seed: int
) -> None:
    """As a search does: sources of any length come, beams go on from other beams, and sentences that are done go."""
    model = model_of(config, seed)
    draw = Random(seed)
    cache: DecoderCache | None = None
    live: list[tuple[Tensor, list[list[int]]]] = []  # a source, and the targets of its beams
    for _ in range(6):
        if len(live) < 2 or draw.random() < 0.4:
            sources = [tokens(1, draw.randint(1, 6), config.source_size)[0] for _ in range(draw.randint(1, 2))]
            prefixes = [[draw.randrange(1, VOCAB) for _ in range(draw.randint(1, 4))] for _ in sources]
            fresh = started(model, sources, prefixes, beams, expand)
            live += [
                (source, [list(prefix) for _ in range(beams)]) for source, prefix in zip(sources, prefixes, strict=True)
            ]
            if cache is None:
                cache = fresh
            else:
                cache.admit(fresh)
        assert cache is not None
        words = [[draw.randrange(1, VOCAB) for _ in range(beams)] for _ in live]
        step = model.logits(model.decode(torch.tensor(words).view(-1, 1), cache=cache))[:, 0].unflatten(0, (-1, beams))
        for (source, targets), chosen, found in zip(live, words, step, strict=True):
            for target, word, logits in zip(targets, chosen, found, strict=True):
                target.append(word)
                expected = full(model, source[None], torch.tensor([target]))[0, -1]
                assert (logits - expected).abs().max() <= 1e-12 * max(1.0, expected.abs().max().item())
        parents = [[draw.randrange(beams) for _ in range(beams)] for _ in live]
        cache.reorder([place * beams + parent for place, row in enumerate(parents) for parent in row])
        live = [
            (source, [list(targets[parent]) for parent in row])
            for (source, targets), row in zip(live, parents, strict=True)
        ]
        kept = draw.sample(range(len(live)), draw.randint(0, len(live)))
        cache.keep([place * beams + beam for place in kept for beam in range(beams)])
        live = [live[place] for place in kept]


def started(
    model: Transformer, sources: list[Tensor], prefixes: list[list[int]], beams: int, expand: bool
) -> DecoderCache:
    """Decode a prefix for each source: once for all beams, which are then expanded, or for every beam."""
    pad = model.config.pad_id
    memory = None
    if model.encoder is not None:
        memory = model.encode(pad_sequence(sources, batch_first=True, padding_value=pad))
    rows = 1 if expand else beams
    cache = model.start_cache(memory, beams=rows)
    targets = [torch.tensor(prefix) for prefix in prefixes for _ in range(rows)]
    model.decode(pad_sequence(targets, batch_first=True), cache=cache, lengths=[len(target) for target in targets])
    if expand:
        cache.expand(beams)
    return cache


@torch.no_grad()
def test_a_cache_may_be_expanded_before_its_first_token() -> None:
    model = model_of(TransformerConfig.preset("tiny", vocab_size=VOCAB))
    source, target = tokens(2, 3, VOCAB), tokens(6, 2, VOCAB)
    cache = start(model, source)
    cache.expand(3)
    expected = model(source.repeat_interleave(3, 0), target)
    torch.testing.assert_close(model.logits(model.decode(target, cache=cache)), expected)


@torch.no_grad()
@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_uneven_rows_reach_the_end_of_a_table_each_by_itself(positions: str) -> None:
    config = TransformerConfig.preset("tiny", vocab_size=VOCAB, positions=positions, max_positions=4, encoder_layers=0)
    model = model_of(config)
    target = tokens(2, 4, VOCAB)
    expected = model(target)
    cache = model.start_cache()
    model.decode(target[:, :3], cache=cache, lengths=torch.tensor([1, 3]))
    rest = torch.stack([target[0, 1:3], torch.stack([target[1, 3], target[1, 3]])])
    step = model.logits(model.decode(rest, cache=cache, lengths=torch.tensor([2, 1])))
    torch.testing.assert_close(step[0], expected[0, 1:3])
    torch.testing.assert_close(step[1, 0], expected[1, 3])
    if positions == "learned":
        with pytest.raises(InputError, match="5 positions .* table of 4"):
            model.decode(target[:, :1], cache=cache)


@torch.no_grad()
def test_uneven_rows_go_beyond_the_first_table_of_sinusoids() -> None:
    model = model_of(TransformerConfig.preset("tiny", vocab_size=VOCAB, encoder_layers=0, decoder_layers=1))
    target = tokens(2, 300, VOCAB)
    expected = model(target)
    cache = model_of(model.config).start_cache()
    model = model_of(model.config)  # its table is as short as it was
    model.decode(target[:, :250], cache=cache, lengths=torch.tensor([200, 250]))
    rows = torch.stack([target[0, 200:250], target[1, 250:300]])
    step = model.logits(model.decode(rows, cache=cache))
    torch.testing.assert_close(step[1], expected[1, 250:300])


def test_what_does_not_fit_a_cache_is_told() -> None:
    model = model_of(TransformerConfig.preset("tiny", vocab_size=VOCAB))
    source, target = tokens(2, 3, VOCAB), tokens(2, 3, VOCAB)
    memory = model.encode(source)
    cache = model.start_cache(memory)
    with pytest.raises(InputError, match="a memory and a cache"):
        model.decode(target, memory, cache=cache)
    with pytest.raises(InputError, match="empty"):
        _ = cache.past.lengths
    model.decode(target, cache=cache)
    assert cache.past.lengths.tolist() == [3, 3]
    for lengths, says in (
        (torch.tensor([7, 3]), "row 0 is said to have 7 real positions, of the 3"),
        (torch.tensor([2, -1]), "row 1 is said to have -1"),
        (torch.tensor([1]), r"shape \(2,\).*got torch.int64 of shape \(1,\)"),
        (torch.tensor([1.0, 2.0]), "torch.float32"),
    ):
        with pytest.raises(InputError, match=says):
            model.decode(target, cache=cache, lengths=lengths)
    with pytest.raises(InputError, match="started with 2 sources and was given 1 rows"):
        model.decode(target[:1], cache=cache)
    with pytest.raises(InputError, match=r"shape \(3,\)"):
        model.decode(target[0], cache=cache)
    with pytest.raises(InputError, match="lengths without a cache"):
        model.decode(target, memory, lengths=torch.tensor([1, 1]))
    assert cache.past.lengths.tolist() == [3, 3]  # nothing of what was refused has been taken in
    model.decode(target, cache=cache)
    assert cache.past.lengths.tolist() == [6, 6]
    with pytest.raises(InputError, match="no memory"):
        model.start_cache()
