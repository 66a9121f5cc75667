"""Positions, patterns, kinds of attention and sharing in every combination that a configuration allows."""

from collections.abc import Sequence
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from regard import Transformer, TransformerConfig, label_smoothed_cross_entropy
from regard.decoding import Request, SearchSettings
from regard.errors import InputError, RegardError
from regard.inference.decode import decode_requests
from regard.inference.generic_decoder import GenericBackend
from regard.layers import DecoderCache
from tests.strategies import VOCAB, model_of, tokens
from tests.variations import varied_configs

configs = varied_configs()
with_decoder = configs.filter(lambda config: config.kind != "encoder-only")
META = torch.device("meta")


def memory_of(model: Transformer, sources: Sequence[Tensor]) -> Any:
    return None if model.encoder is None else model.encode(pad_sequence(list(sources), batch_first=True))


def full(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    """Return the logits of whole sequences; a model of one stack has the target alone."""
    logits: Tensor = model(source, target) if model.config.kind == "encoder-decoder" else model(target)
    return logits


def assert_near(found: Tensor, expected: Tensor, config: TransformerConfig) -> None:
    # The pseudo-inverse of Nyström's landmarks magnifies rounding.
    tolerance = 1e-4 if "nystrom" in str(config.attention) else 1e-10
    assert (found - expected).abs().max() <= tolerance * max(1.0, expected.abs().max().item())


@settings(max_examples=60)
@given(with_decoder, st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(0, 99))
@torch.no_grad()
def test_any_way_of_cutting_the_target_gives_the_same(config: TransformerConfig, cuts: list[int], seed: int) -> None:
    model = model_of(config, seed)
    sources, target = [tokens(1, length, VOCAB)[0] for length in (6, 4, 1)], tokens(3, sum(cuts), VOCAB)
    cache = model.start_cache(memory_of(model, sources))
    steps = [model.logits(model.decode(part, cache=cache)) for part in target.split(cuts, dim=1)]
    expected = full(model, pad_sequence(sources, batch_first=True), target)
    assert_near(torch.cat(steps, dim=1), expected, config)


@settings(max_examples=50)
@given(with_decoder, st.integers(1, 3), st.booleans(), st.integers(0, 1000))
@torch.no_grad()
def test_sentences_with_beams_are_admitted_reordered_and_kept(
    config: TransformerConfig, beams: int, expand: bool, seed: int
) -> None:
    """Prefixes have lengths of their own; each row's logits are those of its own full forward pass, alone."""
    model, draw = model_of(config, seed), Random(seed)
    cache: DecoderCache | None = None
    live: list[tuple[Tensor, list[list[int]]]] = []
    for _ in range(3):
        if len(live) < 2 or draw.random() < 0.4:
            sources = [tokens(1, draw.randint(1, 6), VOCAB)[0] for _ in range(draw.randint(1, 2))]
            prefixes = [[draw.randrange(1, VOCAB) for _ in range(draw.randint(1, 4))] for _ in sources]
            fresh = started(model, sources, prefixes, beams, expand)
            live += [(source, [list(p) for _ in range(beams)]) for source, p in zip(sources, prefixes, strict=True)]
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
                assert_near(logits, full(model, source[None], torch.tensor([target]))[0, -1], config)
        parents = [[draw.randrange(beams) for _ in range(beams)] for _ in live]
        cache.reorder([place * beams + parent for place, row in enumerate(parents) for parent in row])
        live = [(source, [list(targets[p]) for p in row]) for (source, targets), row in zip(live, parents, strict=True)]
        kept = draw.sample(range(len(live)), draw.randint(1, len(live)))
        cache.keep([place * beams + beam for place in kept for beam in range(beams)])
        live = [live[place] for place in kept]


def started(
    model: Transformer, sources: list[Tensor], prefixes: list[list[int]], beams: int, expand: bool
) -> DecoderCache:
    rows = 1 if expand else beams
    cache = model.start_cache(memory_of(model, sources), beams=rows)
    targets = [torch.tensor(prefix) for prefix in prefixes for _ in range(rows)]
    model.decode(pad_sequence(targets, batch_first=True), cache=cache, lengths=[len(target) for target in targets])
    if expand:
        cache.expand(beams)
    return cache


@settings(max_examples=60)
@given(configs, st.integers(0, 4), st.integers(0, 99))
@torch.no_grad()
def test_batch_mates_and_padding_change_nothing(config: TransformerConfig, extra: int, seed: int) -> None:
    model = model_of(config, seed)
    sources, targets = ([tokens(1, length, VOCAB)[0] for length in lengths] for lengths in ((2, 15, 7), (5, 1, 9)))
    padding = torch.zeros(3, extra, dtype=torch.int64)
    padded = [torch.cat([pad_sequence(x, batch_first=True), padding], dim=1) for x in (sources, targets)]
    together = full(model, *padded)
    for source, target, found in zip(sources, targets, together, strict=True):
        assert_near(found[: len(target)], full(model, source[None], target[None])[0], config)


@settings(max_examples=25)
@given(configs, st.sampled_from([torch.float64, torch.float32]))
@torch.no_grad()
def test_a_saved_model_is_the_same_model(config: TransformerConfig, dtype: torch.dtype) -> None:
    model, source, target = model_of(config, dtype=dtype), tokens(2, 5, VOCAB), tokens(2, 4, VOCAB)
    with TemporaryDirectory() as directory:
        model.save(directory)
        loaded = Transformer.load(directory)
    assert loaded.config == config
    assert full(loaded, source, target).equal(full(model, source, target))
    assert loaded.describe() == model.describe()


class NaiveDecoder:
    """Sentences that are being decoded by full forward passes, one for each row and step, without any cache."""

    def __init__(self, model: Transformer, sources: Sequence[Sequence[int]], beams: int) -> None:
        self._model, self._sources, self._beams = model, sources, beams
        self._rows: list[tuple[int, list[list[int]]]] = []

    def _logits(self, number: int, target: list[int]) -> Tensor:
        return full(self._model, torch.tensor([self._sources[number]]), torch.tensor([target]))[0, -1]

    def admit(self, numbers: Sequence[int]) -> Tensor:
        self._rows += [(number, [[1] for _ in range(self._beams)]) for number in numbers]
        return torch.stack([self._logits(number, [1]) for number in numbers])

    def step(self, tokens_BN: Tensor) -> Tensor:
        for (_, targets), chosen in zip(self._rows, tokens_BN.tolist(), strict=True):
            for target, token in zip(targets, chosen, strict=True):
                target.append(token)
        return torch.stack([torch.stack([self._logits(n, target) for target in targets]) for n, targets in self._rows])

    def reorder(self, parents_BN: NDArray[np.int64]) -> None:
        rows = zip(self._rows, parents_BN.tolist(), strict=True)
        self._rows = [(number, [list(targets[parent]) for parent in parents]) for (number, targets), parents in rows]

    def keep(self, places: Sequence[int]) -> None:
        self._rows = [self._rows[place] for place in places]


class NaiveBackend(GenericBackend):
    """A model that is decoded without its caches."""

    def new_decoder(self, sources: Sequence[Sequence[int]], beams: int, **_: object) -> Any:
        return NaiveDecoder(self.model, sources, beams)


@settings(max_examples=40)
@given(with_decoder, st.integers(1, 3), st.sampled_from([(), (7, 3, 5)]), st.integers(0, 99))
@torch.no_grad()
def test_beam_search_finds_what_a_search_over_full_forward_passes_finds(
    config: TransformerConfig, beam: int, prefix: tuple[int, ...], seed: int
) -> None:
    model = model_of(config, seed)
    crosses = config.kind == "encoder-decoder"
    sources = [tokens(1, length, VOCAB)[0].tolist() if crosses else [] for length in (3, 6)]
    requests = [Request(limit=5, prefix=prefix), Request(limit=4)]
    found, expected = (
        decode_requests(backend, sources, requests, SearchSettings(beam=beam))
        for backend in (GenericBackend(model), NaiveBackend(model))
    )
    for mine, naive in zip(found, expected, strict=True):
        assert [one.tokens for one in mine] == [one.tokens for one in naive]
        assert [one.score for one in mine] == pytest.approx([one.score for one in naive], abs=1e-4)


@settings(max_examples=40)
@given(configs, st.booleans())
def test_gradients_reach_every_parameter_and_are_finite(config: TransformerConfig, training: bool) -> None:
    """With a source that is all padding, where every query attends to nothing."""
    model = model_of(config).train(training)
    source, target = tokens(3, 6, VOCAB), tokens(3, 5, VOCAB)
    source[0], target[1, 3:] = 0, 0
    costs: list[Tensor] = []
    logits = full(model, source, target)
    loss = label_smoothed_cross_entropy(logits, target.roll(-1, 1), pad_id=0)
    if config.sharing.act is not None and model.encoder is not None:
        model.encode(source, costs=costs)
        loss = loss + costs[0].sum()
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert logits.isfinite().all()


@settings(max_examples=40)
@given(configs)
def test_it_runs_on_a_device_without_data(config: TransformerConfig) -> None:
    with META:
        model = Transformer(config)
    source, target = tokens(2, 5, VOCAB).to(META), tokens(2, 4, VOCAB).to(META)
    logits = full(model, source, target)
    logits.sum().backward()
    assert (logits.shape, logits.device) == ((2, 4, VOCAB), META)
    if config.kind == "encoder-only":
        return
    cache = model.start_cache(None if model.encoder is None else model.encode(source), beams=2)
    model.decode(torch.ones(4, 3, dtype=torch.int64, device=META), cache=cache, lengths=[3, 1, 2, 3])
    cache.reorder([1, 1, 3, 2])
    assert model.decode(torch.ones(4, 1, dtype=torch.int64, device=META), cache=cache).shape == (4, 1, 8)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"positions": "alibii"}, "positions 'alibii' is not known; did you mean alibi?"),
    ({"attention": {"pattern": "windw"}}, "the pattern 'windw' is not known; did you mean window?"),
    ({"attention": {"kind": "performr"}}, "the kind of attention 'performr' is not known; did you mean performer?"),
    ({"attention": {"kind": "xyz"}}, "the kind of attention 'xyz' is not known; it is one of softmax, linear"),
    ({"sharing": "cycles"}, "sharing 'cycles' is not known; did you mean cycle?"),
    ({"attention": {"pattern": {"kind": "window", "size": 0}}}, "attention.pattern.size is 0"),
    ({"num_heads": 3}, "d_model 8 is not divisible by num_heads 3"),
    ({"num_kv_heads": 4}, "num_heads 2 is not divisible by num_kv_heads 4"),
    (
        {"attention": {"cross": {"pattern": "window"}}},
        "model.attention.cross.pattern is window; cross-attention has no",
    ),
    ({"positions": "rope", "d_k": 3}, "d_k is 3; rotary positions turn pairs of numbers, so it must be even"),
    ({"attention": {"kind": "linformer"}}, "model.attention.kind is linformer, which has no form in a decoder"),
    (
        {"attention": {"decoder": {"kind": "nystrom"}}},
        "model.attention.decoder.kind is nystrom, which has no form in a",
    ),
    ({"attention": {"windows": 3}}, "attention.windows is not a known key"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_cannot_be_is_refused_in_a_sentence(changes: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = dict(vocab_size=VOCAB, d_model=8, num_heads=2, encoder_layers=1, decoder_layers=1)
    with pytest.raises(RegardError) as raised:
        Transformer(TransformerConfig(**fields | changes))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positions": "learned", "max_positions": 4}, "5"),
        ({"attention": {"encoder": {"kind": {"kind": "linformer", "width": 2, "max_length": 4}}}}, "5"),
    ],
)
def test_a_sequence_beyond_a_fixed_length_is_refused(changes: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = dict(vocab_size=VOCAB, d_model=8, num_heads=2, encoder_layers=1, decoder_layers=1)
    model = Transformer(TransformerConfig(**fields | changes))
    model(tokens(1, 4, VOCAB), tokens(1, 4, VOCAB))
    with pytest.raises(InputError, match=message) as raised:
        model(tokens(1, 5, VOCAB), tokens(1, 4, VOCAB))
    assert "4" in str(raised.value)
    assert "\n" not in str(raised.value)
