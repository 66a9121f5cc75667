"""Kinds of attention in a whole model: cached decoding, beams, padding, saving; and what is refused."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from regard import ConfigError, InputError, Transformer, TransformerConfig
from regard.decoding import Request, SearchSettings
from regard.inference.decode import decode_requests
from regard.inference.generic_decoder import GenericBackend
from regard.layers import DecoderCache
from regard.layers.kinds import RecurrentCache
from tests.strategies import VOCAB, model_of, tokens

CAUSAL = [
    {"kind": "linear"},
    {"kind": "linear", "feature_map": "relu", "gating": "retention"},
    {"kind": "linear", "feature_map": "softmax", "gating": "gla"},
    {"kind": "linear", "gating": "gla"},
    {"kind": "performer", "features": 5},
]
ENCODER = [
    {"kind": "linear", "feature_map": "softmax"},
    {"kind": "performer", "features": 7, "seed": 3},
    {"kind": "linformer", "width": 3, "max_length": 24},
    {"kind": "nystrom", "landmarks": 3},
    {"kind": "nystrom", "landmarks": 16, "convolution": 3},
]
CROSS = ["softmax", "performer", {"kind": "linear", "feature_map": "relu"}]


def config_of(decoder: Any = None, encoder: Any = None, cross: Any = None, **more: Any) -> TransformerConfig:
    roles = {"encoder": encoder, "decoder": decoder, "cross": cross}
    attention = {role: {"kind": kind} for role, kind in roles.items() if kind is not None}
    sizes = dict(vocab_size=VOCAB, d_model=12, num_heads=4, num_kv_heads=2, d_k=4, d_v=5, d_ff=10)
    layers = dict(encoder_layers=1, decoder_layers=2)
    return TransformerConfig(**{**sizes, **layers, "attention": attention, **more})


@st.composite
def configs(draw: st.DrawFn) -> TransformerConfig:
    """Draw a configuration with a kind in each role."""
    encoder_layers = draw(st.sampled_from([0, 1, 2]))
    encoder_kinds = draw(st.sampled_from([ENCODER, ENCODER[:2]]))
    rotated = encoder_layers == 0 or encoder_kinds is not ENCODER
    more: dict[str, Any] = dict(
        num_heads=draw(st.sampled_from([2, 4])),
        positions=draw(st.sampled_from(["sinusoidal", "none", *(["rope"] if rotated else [])])),
        encoder_layers=encoder_layers,
        norm_placement=draw(st.sampled_from(["pre", "post"])),
    )
    roles = [draw(st.sampled_from(kinds)) for kinds in (CAUSAL, encoder_kinds, CROSS)]
    return config_of(*roles, **more)


def memory_of(model: Transformer, sources: list[Tensor]) -> Any:
    return None if model.encoder is None else model.encode(pad_sequence(sources, batch_first=True))


def full(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    return model.forward(target) if model.encoder is None else model.forward(source, target)


def assert_near(found: Tensor, expected: Tensor) -> None:
    assert (found - expected).abs().max() <= 1e-10 * max(1.0, expected.abs().max().item())


@settings(max_examples=60)
@given(configs(), st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(0, 99))
@torch.no_grad()
def test_any_way_of_cutting_the_target_gives_the_same(config: TransformerConfig, cuts: list[int], seed: int) -> None:
    model = model_of(config, seed)
    sources, target = [tokens(1, length, VOCAB)[0] for length in (6, 4, 1)], tokens(3, sum(cuts), VOCAB)
    cache = model.start_cache(memory_of(model, sources))
    steps = [model.logits(model.decode(part, cache=cache)) for part in target.split(cuts, dim=1)]
    assert_near(torch.cat(steps, dim=1), full(model, pad_sequence(sources, batch_first=True), target))


@settings(max_examples=40)
@given(configs(), st.integers(1, 3), st.booleans(), st.integers(0, 1000))
@torch.no_grad()
def test_sentences_with_beams_are_admitted_reordered_and_kept(
    config: TransformerConfig, beams: int, expand: bool, seed: int
) -> None:
    """Prefixes have lengths of their own; each row's logits are those of its own full forward pass, alone."""
    model, draw = model_of(config, seed), Random(seed)
    cache: DecoderCache | None = None
    live: list[tuple[Tensor, list[list[int]]]] = []
    for _ in range(5):
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
                assert_near(logits, full(model, source[None], torch.tensor([target]))[0, -1])
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


@settings(max_examples=20)
@given(configs().filter(lambda config: config.kind == "encoder-decoder"), st.integers(1, 4), st.integers(0, 99))
@torch.no_grad()
def test_beam_search_finds_what_the_forward_pass_finds_probable(
    config: TransformerConfig, beam: int, seed: int
) -> None:
    model = model_of(config.model_copy(update={"bos_id": 1, "eos_id": 2}), seed)
    sources = [tokens(1, length, VOCAB)[0].tolist() for length in (3, 8, 1, 5)]
    found = decode_requests(
        GenericBackend(model), sources, [Request(limit=8)] * 4, SearchSettings(beam=beam, n_best=beam)
    )
    for source, hypotheses in zip(sources, found, strict=True):
        assert len(hypotheses) == beam
        for hypothesis in hypotheses:
            target = [*hypothesis.tokens, 2]
            log_probs = model(torch.tensor([source]), torch.tensor([[1, *target[:-1]]])).log_softmax(-1)[0]
            expected = log_probs[range(len(target)), target].sum().item()
            assert hypothesis.log_probability == pytest.approx(expected, rel=1e-9)


@settings(max_examples=40)
@given(configs(), st.integers(0, 99))
@torch.no_grad()
def test_a_sentence_does_not_depend_on_its_batch(config: TransformerConfig, seed: int) -> None:
    model = model_of(config, seed)
    sources, targets = ([tokens(1, length, VOCAB)[0] for length in lengths] for lengths in ((2, 20, 7), (5, 1, 9)))
    together = full(model, *(pad_sequence(x, batch_first=True) for x in (sources, targets)))
    for source, target, found in zip(sources, targets, together, strict=True):
        assert_near(found[: len(target)], full(model, source[None], target[None])[0])


@pytest.mark.parametrize("decoder", CAUSAL)
def test_a_saved_model_reloads_exactly(decoder: Any, tmp_path: Path) -> None:
    config = config_of(decoder, {"kind": "performer", "features": 9}, "performer")
    model, source, target = Transformer(config).eval(), tokens(2, 5, VOCAB), tokens(2, 4, VOCAB)
    model.save(tmp_path / "model")
    for dtype in (torch.float32, torch.float64):
        loaded = Transformer.load(tmp_path / "model", at_least=dtype)
        assert loaded(source, target).equal(model.to(dtype)(source, target))
    assert "kind" in model.describe() or decoder.get("gating") != "gla"


@settings(max_examples=8)
@given(configs(), st.booleans())
def test_it_runs_on_a_device_without_data(config: TransformerConfig, long: bool) -> None:
    """Forward and backward pass and cached decoding read nothing back and name no other device."""
    with torch.device("meta"):
        model = Transformer(config)
        tokens_of = {length: torch.ones(2, length, dtype=torch.int64) for length in (1, 4, 20, 1100)}
    inputs = [tokens_of[20]] * (model.encoder is not None) + [tokens_of[1100 if long else 4]]
    logits = model(*inputs)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    cache = model.start_cache(None if model.encoder is None else model.encode(inputs[0]))
    model.decode(tokens_of[4], cache=cache, lengths=[2, 4])
    cache.reorder([1, 1])
    assert model.decode(tokens_of[1], cache=cache).device == logits.device


@pytest.mark.parametrize("kind", CAUSAL)
def test_what_a_decoder_keeps_does_not_grow(kind: Any) -> None:
    model = model_of(config_of(kind, encoder_layers=0))
    sizes = []
    for length in (1, 50):
        cache = model.start_cache()
        model.decode(tokens(2, length, VOCAB), cache=cache)
        past = cache.past
        assert isinstance(past, RecurrentCache)
        assert past.state is not None
        sizes.append([x.numel() for x in past.state if x is not None])
    assert sizes[0] == sizes[1]


LINEAR = {"kind": "linear"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    (dict(attention={"kind": "linformer"}), "model.attention.kind is linformer, which has no form in a decoder"),
    (
        dict(attention={"decoder": {"kind": "linformer"}}),
        "model.attention.decoder.kind is linformer, which has no form in a decoder: each of its keys mixes all",
    ),
    (dict(attention={"decoder": {"kind": "nystrom"}}), "a landmark averages positions that come after some"),
    (
        dict(attention={"cross": {"kind": "nystrom"}}),
        "model.attention.cross.kind is nystrom, which has no form in cross",
    ),
    (dict(attention={"cross": {"kind": "linformer"}}), "its published form is self-attention alone"),
    (
        dict(attention={"kind": {"kind": "linear", "gating": "gla"}}),
        "model.attention.kind is linear with gla gating, which has no form in an encoder: the past fades",
    ),
    (dict(attention={"cross": {"kind": {"kind": "linear", "gating": "retention"}}}), "no form in cross-attention"),
    (dict(attention={"kind": LINEAR, "softcap": 5.0}), "no scores for model.attention.softcap"),
    (dict(attention={"kind": LINEAR, "scale": 1.0}), "no scores for model.attention.scale"),
    (dict(attention={"kind": "performer", "pattern": "window"}), "no scores for a pattern"),
    (dict(attention={"kind": LINEAR}, positions="alibi"), "no scores for model.positions alibi to add to"),
    (dict(attention={"kind": LINEAR}, positions="t5"), "no scores for model.positions t5 to add to"),
    (dict(attention={"kind": "performer"}, positions="shaw"), "no scores for model.positions shaw to add to"),
    (dict(attention={"encoder": {"kind": "nystrom"}}, positions="rope"), "model.positions rope, which rotates them"),
    (dict(attention={"kind": "lineer"}), "the kind of attention 'lineer' is not known; did you mean linear"),
    (dict(attention={"kind": {"kind": "performer", "features": 0}}), "features is 0"),
    (dict(attention={"kind": {"kind": "linear", "feature_map": "gelu"}}), "feature_map is 'gelu'"),
    (dict(attention={"encoder": {"kind": {"kind": "nystrom", "convolution": 4}}}), "convolution is over 4 positions"),
]


@pytest.mark.parametrize(("fields", "says"), REFUSED, ids=range(len(REFUSED)))
def test_what_does_not_go_together_is_one_sentence(fields: dict[str, Any], says: str) -> None:
    with pytest.raises((ConfigError, InputError), match=says) as caught:
        Transformer(TransformerConfig.preset("tiny", vocab_size=VOCAB, **fields))
    assert "\n" not in str(caught.value)


def test_a_sequence_beyond_the_length_of_linformer_is_told() -> None:
    model = Transformer(config_of(LINEAR, {"kind": "linformer", "max_length": 6}))
    with pytest.raises(InputError, match="a sequence of 7 positions is longer than Linformer's max_length 6"):
        model.encode(tokens(1, 7, VOCAB))


def test_other_kinds_have_no_attention_weights() -> None:
    model = Transformer(config_of(cross="performer"))
    with pytest.raises(InputError, match="PerformerAttention has no scores"):
        model.cross_attention(tokens(1, 3, VOCAB), tokens(1, 3, VOCAB))
