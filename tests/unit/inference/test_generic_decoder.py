"""The generic decoder gives the model's own logits, whatever rows and sentences come and go."""

from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import Transformer, TransformerConfig
from regard.acceleration.backend import Backend
from regard.acceleration.packed_decoder import PackedBackend
from regard.data.lexicon import Lexicon
from regard.decoding import Hypothesis, Request, SearchSettings
from regard.decoding.shortlist import Shortlist
from regard.errors import InputError
from regard.inference.decode import decode_requests
from regard.inference.generic_decoder import GenericBackend
from tests.strategies import VOCAB, configs, model_of, tokens

with_decoder = configs().filter(lambda config: config.kind != "encoder-only")
randoms = st.randoms(use_true_random=False)
START, END = 1, 2


def searchable(config: TransformerConfig) -> TransformerConfig:
    return config.model_copy(update={"bos_id": START, "eos_id": END})


def full(model: Transformer, source: list[int], target: list[int]) -> Tensor:
    """The logits after the last token, by the whole forward pass."""
    target_1T = torch.tensor([target])
    logits = model(torch.tensor([source]), target_1T) if model.encoder is not None else model(target_1T)
    last: Tensor = logits[0, -1]
    return last


def last_attention(model: Transformer, source: list[int], target: list[int]) -> Tensor:
    """What the last token attends to in the source, the mean of the heads of the last layer."""
    return model.cross_attention(torch.tensor([source]), torch.tensor([target]))[-1, 0, :, -1].mean(0)


@settings(max_examples=100, deadline=None)
@given(with_decoder, st.integers(1, 3), st.sampled_from([torch.float32, torch.float64]), st.booleans(), randoms)
@torch.no_grad()
def test_any_course_of_a_search_gives_the_logits_of_the_forward_pass(
    config: TransformerConfig, N: int, dtype: torch.dtype, shortlisted: bool, random: Random
) -> None:
    model = model_of(searchable(config), dtype=dtype)
    # Norms with hardly any ε over eight numbers amplify float32's rounding; float64 shows that nothing else differs.
    tolerance = 1e-4 if dtype == torch.float32 else 1e-12

    def check(found: Tensor, expected: Tensor, words: list[int]) -> None:
        assert (found[words] - expected[words]).abs().max() <= tolerance * max(1.0, float(expected.abs().max()))
        assert (found[[word for word in range(VOCAB) if word not in words]] == -torch.inf).all()

    sources = [tokens(1, random.randint(1, 8), config.source_size)[0].tolist() for _ in range(7)]
    allowed = [sorted(random.sample(range(VOCAB), random.randint(1, VOCAB))) for _ in sources]
    words = [np.array(some, dtype=np.int32) for some in allowed] if shortlisted else None
    if not shortlisted:
        allowed = [list(range(VOCAB))] * len(sources)
    crosses = model.encoder is not None
    decoder = GenericBackend(model).new_decoder(sources, N, attention=crosses, words=words)
    live: list[tuple[int, list[list[int]]]] = []
    fresh = 0
    for _ in range(12):
        while fresh < len(sources) and (not live or random.random() < 0.3):
            numbers = range(fresh, min(fresh + random.randint(1, 2), len(sources)))
            first_BW = decoder.admit(numbers)
            for place, number in enumerate(numbers):
                check(first_BW[place], full(model, sources[number], [START]), allowed[number])
            live += [(number, [[START] for _ in range(N)]) for number in numbers]
            fresh = numbers.stop
        if not live:
            break
        words_BN = torch.tensor([[random.randrange(1, VOCAB) for _ in range(N)] for _ in live])
        logits_BNW = decoder.step(words_BN)
        attention_BNS = decoder.attention() if crosses else None
        for place, (number, rows) in enumerate(live):
            for row, written in enumerate(rows):
                written.append(int(words_BN[place, row]))
                check(logits_BNW[place, row], full(model, sources[number], written), allowed[number])
                if attention_BNS is not None:
                    weights_S = last_attention(model, sources[number], written)
                    found_S = attention_BNS[place, row]
                    torch.testing.assert_close(found_S[: len(weights_S)], weights_S, atol=100 * tolerance, rtol=0.0)
                    assert (found_S[len(weights_S) :] == 0.0).all()
        parents_BN = np.array([[random.randrange(N) for _ in range(N)] for _ in live])
        decoder.reorder(parents_BN)
        live = [
            (number, [list(rows[parent]) for parent in parents])
            for (number, rows), parents in zip(live, parents_BN.tolist(), strict=True)
        ]
        if random.random() < 0.5:
            kept = random.sample(range(len(live)), random.randint(0, len(live)))
            decoder.keep(kept)
            live = [live[place] for place in kept]


def found_by(
    backend: Backend, sources: list[list[int]], options: SearchSettings, limit: int = 12
) -> list[list[Hypothesis]]:
    return decode_requests(backend, sources, [Request(limit=limit)] * len(sources), options)


SETTINGS = [
    SearchSettings(beam=1),
    SearchSettings(beam=4, n_best=4),
    SearchSettings(beam=4, groups=2, diversity=0.5),
    SearchSettings(beam=3, coverage_penalty=0.3),
    SearchSettings(sample=True, n_best=2, seed=5),
    SearchSettings(beam=3, shortlist=True),
]
translating = configs().filter(lambda config: config.kind == "encoder-decoder")


def backends(model: Transformer) -> tuple[GenericBackend, PackedBackend]:
    """Both, with a shortlist of one word in three."""
    config = model.config
    lexicon = Lexicon(np.full((config.source_size, 1), -1), np.arange(0, config.vocab_size, 3) + 1)
    shortlist = Shortlist({None: lexicon})
    return GenericBackend(model, shortlist), PackedBackend(model, shortlist=shortlist)


@settings(max_examples=40, deadline=None)
@given(translating, st.sampled_from(SETTINGS), randoms)
def test_a_search_in_float64_finds_what_the_packed_decoder_lets_it_find(
    config: TransformerConfig, options: SearchSettings, random: Random
) -> None:
    generic, packed = backends(model_of(searchable(config)))
    sources = [[*tokens(1, random.randint(1, 8), config.source_size)[0].tolist(), END] for _ in range(5)]
    for one, other in zip(found_by(generic, sources, options), found_by(packed, sources, options), strict=True):
        assert [found.tokens for found in one] == [found.tokens for found in other]
        assert [found.score for found in one] == pytest.approx([found.score for found in other], abs=1e-10)


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_a_search_in_float32_finds_what_the_packed_decoder_lets_it_find(options: SearchSettings) -> None:
    torch.manual_seed(1)
    config = TransformerConfig.preset("tiny", vocab_size=200, bos_id=START, eos_id=END)
    generic, packed = backends(Transformer(config).eval())
    sources = [[*tokens(1, 1 + number % 9, 200)[0].tolist(), END] for number in range(20)]
    for one, other in zip(found_by(generic, sources, options), found_by(packed, sources, options), strict=True):
        assert [found.score for found in one] == pytest.approx([found.score for found in other], abs=1e-4)
        for mine, theirs in zip(one, other, strict=True):
            ties = [found for found in other if abs(found.score - theirs.score) < 1e-4]
            assert any(mine.tokens == found.tokens for found in ties)


def test_a_model_must_know_where_to_start() -> None:
    with pytest.raises(InputError, match="no decoder, or no bos_id and eos_id"):
        GenericBackend(Transformer(TransformerConfig.preset("tiny", vocab_size=20)))
