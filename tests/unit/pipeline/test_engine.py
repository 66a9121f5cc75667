"""The packed engine gives the model's own logits, whatever rows and sentences come and go."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import Transformer, TransformerConfig
from regard.errors import InputError
from regard.pipeline.engine import Decoding, Engine
from tests.strategies import VOCAB, configs, model_of, tokens

with_decoder = configs().filter(lambda config: config.kind != "encoder-only")


def full(model: Transformer, source: list[int], target: list[int]) -> Tensor:
    """The logits after the last token, by the whole forward pass."""
    target_1T = torch.tensor([target])
    logits = model(torch.tensor([source]), target_1T) if model.encoder is not None else model(target_1T)
    last: Tensor = logits[0, -1]
    return last


@settings(max_examples=120, deadline=None)
@given(
    with_decoder, st.integers(1, 3), st.sampled_from([torch.float32, torch.float64]), st.randoms(use_true_random=False)
)
@torch.no_grad()
def test_any_course_of_a_search_gives_the_logits_of_the_forward_pass(
    config: TransformerConfig, N: int, dtype: torch.dtype, random: object
) -> None:
    config = config.model_copy(update={"bos_id": 1, "eos_id": 2})
    model = model_of(config, dtype=dtype)
    draw = torch.Generator().manual_seed(int(random.getrandbits(30)))  # type: ignore[attr-defined]

    def pick(low: int, high: int, size: tuple[int, ...] = (1,)) -> Tensor:
        return torch.randint(low, high, size, generator=draw)

    def check(found: Tensor, expected: Tensor) -> None:
        tolerance = (1e-5 if dtype == torch.float32 else 1e-12) * max(1.0, float(expected.abs().max()))
        assert (found - expected).abs().max() <= tolerance

    sources = [tokens(1, int(pick(1, 9)), config.source_size)[0].tolist() for _ in range(7)]
    decoding = Decoding(Engine(model), sources, N, attention=model.encoder is not None)
    live: list[tuple[int, list[list[int]]]] = []
    fresh = 0
    for _ in range(12):
        while fresh < len(sources) and (not live or int(pick(0, 3)) == 0):
            count = min(int(pick(1, 3)), len(sources) - fresh)
            first_BW = decoding.admit(range(fresh, fresh + count))
            for number in range(fresh, fresh + count):
                check(first_BW[number - fresh], full(model, sources[number], [1]))
            live += [(number, [[1] for _ in range(N)]) for number in range(fresh, fresh + count)]
            fresh += count
        if not live:
            break
        words_BN = pick(1, VOCAB, (len(live), N))
        logits_BNW = decoding.step(words_BN)
        for place, (number, rows) in enumerate(live):
            for row, written in enumerate(rows):
                written.append(int(words_BN[place, row]))
                check(logits_BNW[place, row], full(model, sources[number], written))
        if model.encoder is not None:
            assert torch.allclose(decoding.attention().sum(-1), torch.ones(len(live), N, dtype=dtype))
        parents_BN = pick(0, N, (len(live), N))
        decoding.reorder(parents_BN)
        live = [
            (number, [list(rows[parent]) for parent in parents])
            for (number, rows), parents in zip(live, parents_BN.tolist(), strict=True)
        ]
        kept = torch.randperm(len(live), generator=draw)[: int(pick(0, len(live) + 1))].tolist()
        if len(kept) < len(live) and int(pick(0, 2)):
            decoding.keep(kept)
            live = [live[place] for place in kept]


def test_bytes_come_close_and_rows_do_not_see_each_other() -> None:
    config = TransformerConfig.preset("small", vocab_size=500, bos_id=1, eos_id=2, encoder_layers=2, decoder_layers=2)
    torch.manual_seed(0)
    model = Transformer(config).eval()
    sources = [tokens(1, 5 + index, 500)[0].tolist() for index in range(8)]
    words_BN = tokens(8, 2, 500)
    together = {}
    for precision in ("float", "int8"):
        decoding = Decoding(Engine(model, precision), sources, 2)
        with torch.no_grad():
            decoding.admit(range(8))
            together[precision] = decoding.step(words_BN)
            loud = Decoding(Engine(model, precision), sources, 2)
            loud.admit([3])
            alone = loud.step(words_BN[3:4])
        assert (alone[0] - together[precision][3]).abs().max() < 1e-4
    difference = (together["int8"] - together["float"]).abs().mean() / together["float"].std()
    assert 0.0 < difference < 0.05


def test_a_model_must_know_where_to_start() -> None:
    with pytest.raises(InputError, match="no decoder, or no bos_id and eos_id"):
        Engine(Transformer(TransformerConfig.preset("tiny", vocab_size=20)))
