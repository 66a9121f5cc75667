"""Generation by a decoder alone: prompts are prefixes, read at once, and every backend finds the same."""

from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import Transformer, TransformerConfig
from regard.acceleration.backend import Backend
from regard.acceleration.packed_decoder import PackedBackend, PackedDecoder
from regard.data.lexicon import Lexicon
from regard.decoding import Hypothesis, Request, SearchSettings, loop
from regard.decoding.shortlist import Shortlist
from regard.errors import InputError
from regard.inference.backends import choose_backend
from regard.inference.decode import decode_requests
from regard.inference.forced_decoding import token_log_probabilities
from regard.inference.generic_decoder import GenericBackend, GenericDecoder
from regard.kernels.bindings import kernels
from tests.strategies import VOCAB, configs, model_of, sparse_configs, tokens
from tests.unit.model.test_variations import NaiveBackend

START, END = 1, 2
SETTINGS = [
    SearchSettings(beam=1),
    SearchSettings(beam=4, n_best=4),
    SearchSettings(beam=4, groups=2, n_best=2),
    SearchSettings(sample=True, n_best=3, seed=5),
]


def alone(config: TransformerConfig) -> TransformerConfig:
    changes = {"bos_id": START, "eos_id": END, "encoder_layers": 0, "decoder_layers": 2, "source_vocab_size": None}
    return TransformerConfig.model_validate({**config.model_dump(), **changes})


def prompts_of(random: Random, count: int) -> list[tuple[int, ...]]:
    return [tuple(random.randrange(3, VOCAB) for _ in range(random.randint(0, 9))) for _ in range(count)]


def found_by(backend: Backend, prompts: list[tuple[int, ...]], options: SearchSettings) -> list[list[Hypothesis]]:
    requests = [Request(limit=len(prompt) + 4, prefix=prompt, seed=number) for number, prompt in enumerate(prompts)]
    return decode_requests(backend, [[]] * len(prompts), requests, options)


def assert_same(one: list[list[Hypothesis]], other: list[list[Hypothesis]], tolerance: float) -> None:
    for mine, theirs in zip(one, other, strict=True):
        assert [found.tokens for found in mine] == [found.tokens for found in theirs]
        for name in ("score", "log_probability"):
            expected = [getattr(found, name) for found in theirs]
            assert [getattr(found, name) for found in mine] == pytest.approx(expected, abs=tolerance)


@settings(max_examples=60, deadline=None)
@given(
    (configs(relative=True) | sparse_configs()).map(alone),
    st.sampled_from(SETTINGS),
    st.randoms(use_true_random=False),
)
@torch.no_grad()
def test_a_prompt_is_gone_on_from_as_by_full_forward_passes(
    config: TransformerConfig, options: SearchSettings, random: Random
) -> None:
    model, prompts = model_of(config), prompts_of(random, 4)
    expected = found_by(NaiveBackend(model), prompts, options)
    assert_same(found_by(GenericBackend(model), prompts, options), expected, 1e-8)
    assert_same(found_by(choose_backend(model), prompts, options), expected, 1e-8)
    for prompt, hypotheses in zip(prompts, expected, strict=True):
        (by_itself,) = found_by(GenericBackend(model), [prompt], options)
        if not options.sample:  # whose requests have seeds of their own
            assert_same([by_itself], [hypotheses], 1e-8)
        assert all(tuple(found.tokens[: len(prompt)]) == prompt for found in hypotheses)


@settings(max_examples=30, deadline=None)
@given(
    configs().filter(lambda config: config.kind == "encoder-decoder"), st.booleans(), st.randoms(use_true_random=False)
)
@torch.no_grad()
def test_the_start_of_a_translation_is_read_as_if_it_were_forced(
    config: TransformerConfig, shortlisted: bool, random: Random
) -> None:
    """With a shortlist too, of one word in three, by whose words alone probabilities are normalized."""
    model = model_of(config.model_copy(update={"bos_id": START, "eos_id": END}))
    sources = [tokens(1, random.randint(1, 8), config.source_size)[0].tolist() for _ in range(4)]
    requests = [Request(limit=len(prefix) + 3, prefix=prefix) for prefix in prompts_of(random, 4)]
    lexicon = Lexicon(np.full((config.source_size, 1), -1), np.arange(0, config.vocab_size, 3) + 1)
    backends = [kind(model, shortlist=Shortlist({None: lexicon})) for kind in (GenericBackend, PackedBackend)]
    options = SearchSettings(beam=3, n_best=3, shortlist=shortlisted)
    read = [decode_requests(backend, sources, requests, options) for backend in backends]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "PrefixReader", type(None))
        forced = [decode_requests(backend, sources, requests, options) for backend in backends]
    for found in (*read, forced[1]):
        assert_same(found, forced[0], 1e-8)


def model_for_kernels(**changes: Any) -> Transformer:
    torch.manual_seed(3)
    fields = dict(d_model=32, num_heads=4, d_ff=64, encoder_layers=0, decoder_layers=2, dropout=0.0)
    model = Transformer(TransformerConfig(**{"vocab_size": 200, "bos_id": START, "eos_id": END, **fields, **changes}))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(2.0)
    return model.eval()


@pytest.mark.parametrize("positions", ["sinusoidal", "rope", "alibi"])
@pytest.mark.parametrize("precision", ["float", "int8"])
def test_the_packed_decoder_reads_prompts_and_writes_on(positions: str, precision: Any) -> None:
    if precision == "int8" and kernels() is None:
        pytest.skip("the kernels were not built: there was no compiler")
    model = model_for_kernels(positions=positions)
    backend = choose_backend(model, precision)
    assert backend.name.startswith("packed")
    prompts = [tuple(tokens(1, length, 200)[0].tolist()) for length in (40, 3, 17, 0, 25)]
    found = found_by(backend, prompts, SearchSettings(beam=3))
    for prompt, (best, *_) in zip(prompts, found, strict=True):
        assert tuple(best.tokens[: len(prompt)]) == prompt
        (logs,) = token_log_probabilities(model, [([], best.tokens)])
        tolerance = 1e-3 if precision == "float" else 0.05 * abs(sum(logs))
        assert best.log_probability == pytest.approx(sum(logs), abs=tolerance)


@pytest.mark.parametrize("kind", [GenericBackend, PackedBackend])
def test_a_long_prompt_is_read_in_one_pass(kind: type[Backend], monkeypatch: pytest.MonkeyPatch) -> None:
    model, steps = model_for_kernels(), []
    prompt = tuple(tokens(1, 700, 200)[0].tolist())
    decoder = GenericDecoder if kind is GenericBackend else PackedDecoder
    plain = decoder.step

    def step(self: Any, tokens_BN: torch.Tensor) -> torch.Tensor:
        steps.append(tuple(tokens_BN.shape))
        return plain(self, tokens_BN)

    monkeypatch.setattr(decoder, "step", step)
    ((found,),) = decode_requests(kind(model), [[]], [Request(limit=705, prefix=prompt)], SearchSettings(beam=2))
    assert len(steps) <= 5
    (logs,) = token_log_probabilities(model, [([], found.tokens)])
    assert found.log_probability == pytest.approx(sum(logs), rel=1e-5)


def test_a_changed_layer_is_generated_with() -> None:
    model, prompts = model_for_kernels(), [(5, 6, 7), (8,)]
    before = found_by(choose_backend(model), prompts, SearchSettings(beam=2))
    model.get_submodule("decoder.layers.1.feed_forward").register_forward_hook(lambda module, inputs, output: -output)
    backend = choose_backend(model)
    assert backend.name.startswith("generic decoder (")
    after = found_by(backend, prompts, SearchSettings(beam=2))
    assert_same(after, found_by(NaiveBackend(model), prompts, SearchSettings(beam=2)), 1e-3)
    assert [found.score for (found, *_) in after] != pytest.approx([found.score for (found, *_) in before], abs=1e-3)


def test_what_a_decoder_alone_does_not_have_is_refused() -> None:
    backend = choose_backend(model_for_kernels())
    with pytest.raises(InputError, match="reads no source: what it goes on from is the prefix of a request"):
        decode_requests(backend, [[5, 6]], [Request(limit=3)], SearchSettings())
    with pytest.raises(InputError, match="coverage_penalty is of the attention to a source"):
        decode_requests(backend, [[]], [Request(limit=3)], SearchSettings(coverage_penalty=0.2))
    with pytest.raises(InputError, match="token 200"):
        found_by(backend, [(5, 200)], SearchSettings())
    with pytest.raises(InputError, match="token 200"):
        found_by(GenericBackend(backend.model), [(5, 200)], SearchSettings())
