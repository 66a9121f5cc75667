"""The packed decoder gives the model's own logits, whatever rows and sentences come and go."""

from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import Transformer, TransformerConfig
from regard.acceleration.packed_decoder import PackedBackend, PackedDecoder
from regard.acceleration.packed_linear import packed_linear
from regard.decoding.loop import places_left
from regard.errors import InputError
from regard.kernels.bindings import kernels
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
        # Norms with hardly any ε over eight numbers make much of what floats round away; doubles show that it is that.
        tolerance = (1e-4 if dtype == torch.float32 else 1e-12) * max(1.0, float(expected.abs().max()))
        assert (found - expected).abs().max() <= tolerance

    sources = [tokens(1, int(pick(1, 9)), config.source_size)[0].tolist() for _ in range(7)]
    decoder = PackedBackend(model).new_decoder(sources, N, attention=model.encoder is not None)
    live: list[tuple[int, list[list[int]]]] = []
    fresh = 0
    for _ in range(12):
        while fresh < len(sources) and (not live or int(pick(0, 3)) == 0):
            count = min(int(pick(1, 3)), len(sources) - fresh)
            first_BW = decoder.admit(range(fresh, fresh + count))
            for number in range(fresh, fresh + count):
                check(first_BW[number - fresh], full(model, sources[number], [1]))
            live += [(number, [[1] for _ in range(N)]) for number in range(fresh, fresh + count)]
            fresh += count
        if not live:
            break
        words_BN = pick(1, VOCAB, (len(live), N))
        logits_BNW = decoder.step(words_BN)
        for place, (number, rows) in enumerate(live):
            for row, written in enumerate(rows):
                written.append(int(words_BN[place, row]))
                check(logits_BNW[place, row], full(model, sources[number], written))
        if model.encoder is not None:
            assert torch.allclose(decoder.attention().sum(-1), torch.ones(len(live), N, dtype=dtype))
        parents_BN = pick(0, N, (len(live), N))
        decoder.reorder(parents_BN.numpy())
        live = [
            (number, [list(rows[parent]) for parent in parents])
            for (number, rows), parents in zip(live, parents_BN.tolist(), strict=True)
        ]
        done = torch.randperm(len(live), generator=draw)[: int(pick(0, len(live) + 1))].tolist()
        if int(pick(0, 2)):
            kept = places_left(len(live), done)
            decoder.keep(kept)
            live = [live[place] for place in kept]


@pytest.mark.skipif(kernels() is None, reason="the kernels were not built: there was no compiler")
@settings(max_examples=120, deadline=None)
@given(with_decoder, st.integers(1, 3), st.sampled_from([1e-5, 0.3]), st.randoms(use_true_random=False))
@torch.no_grad()
def test_kernels_give_what_the_packed_layers_give(
    config: TransformerConfig, N: int, eps: float, random: object
) -> None:
    model = model_of(config.model_copy(update={"bos_id": 1, "eos_id": 2, "norm_eps": eps}), dtype=torch.float32)
    draw = torch.Generator().manual_seed(int(random.getrandbits(30)))  # type: ignore[attr-defined]
    sources = [tokens(1, 1 + 3 * number % 10, config.source_size)[0].tolist() for number in range(6)]
    backend = PackedBackend(model, "int8")
    assert backend.fast_decoder is not None
    by_kernels = backend.new_decoder(sources, N)
    slow = PackedBackend(model, "int8")
    slow.fast_decoder = slow._fast_encoder = None
    by_packed = slow.new_decoder(sources, N)
    differences: list[float] = []

    def check(found: Tensor, expected: Tensor) -> None:
        difference = (found - expected).abs().max() / expected.abs().max()
        # A number that lies between two bytes may be rounded to either, and its row is then another by that much.
        assert difference < 0.2
        differences.append(float(difference))

    for first, count in ((0, 2), (2, 1), (3, 3)):
        numbers = range(first, first + count)
        check(by_kernels.admit(numbers), by_packed.admit(numbers))
        for _ in range(4):
            B = by_kernels._state.count  # type: ignore[attr-defined]
            words_BN = torch.randint(1, VOCAB, (B, N), generator=draw)
            check(by_kernels.step(words_BN), by_packed.step(words_BN))
            parents_BN = torch.randint(0, N, (B, N), generator=draw)
            kept = places_left(B, [int(torch.randint(0, B, (), generator=draw))] if B > 1 else [])
            for decoder in (by_kernels, by_packed):
                decoder.reorder(parents_BN.numpy())
                decoder.keep(kept)
    assert min(differences) < 1e-4


@pytest.mark.skipif(kernels() is None, reason="the kernels were not built: there was no compiler")
@torch.no_grad()
def test_kernels_compute_each_sentence_by_itself_with_any_number_of_threads() -> None:
    config = TransformerConfig.preset("small", vocab_size=500, bos_id=1, eos_id=2, encoder_layers=2, decoder_layers=2)
    torch.manual_seed(0)
    backend = PackedBackend(Transformer(config).eval(), "int8")
    sources = [tokens(1, 3 + 7 * number % 40, 500)[0].tolist() for number in range(30)]
    words_BN = tokens(30, 3, 500)
    torch.set_num_threads(3)
    together = backend.new_decoder(sources, 3)
    first_BW, second_BNW = together.admit(range(30)), together.step(words_BN)
    torch.set_num_threads(1)
    for number in range(30):
        alone = backend.new_decoder(sources, 3)
        assert alone.admit([number])[0].equal(first_BW[number])
        assert alone.step(words_BN[number : number + 1])[0].equal(second_BNW[number])


@pytest.mark.skipif(kernels() is None, reason="the kernels were not built: there was no compiler")
@torch.no_grad()
def test_what_is_not_a_number_goes_through_all_kernels() -> None:
    config = TransformerConfig.preset("tiny", vocab_size=30, bos_id=1, eos_id=2)
    for name in ("encoder.layers.0.self_attention.key", "decoder.layers.1.self_attention.value"):
        torch.manual_seed(0)
        model = Transformer(config).eval()
        model.get_parameter(f"{name}.bias")[0] = torch.nan
        assert PackedBackend(model, "int8").new_decoder([[5, 6, 2]], 2).admit([0]).isnan().all()


@pytest.mark.parametrize("precision", ["float", "int8"])
@torch.no_grad()
def test_padding_in_a_source_is_not_attended_to(precision: Literal["float", "int8"]) -> None:
    config = TransformerConfig.preset("tiny", vocab_size=30, bos_id=1, eos_id=2)
    torch.manual_seed(0)
    model = Transformer(config).eval()
    sources = [[7] * 9, [5, 0, 6, 0, 2]]
    after, alone = (PackedBackend(model, precision).new_decoder(sources, 1) for _ in range(2))
    after.admit([0])
    after.keep([])
    found_W = after.admit([1])[0]
    assert torch.allclose(found_W, alone.admit([1])[0], atol=1e-6)
    assert (found_W - full(model, sources[1], [1])).abs().max() < (1e-5 if precision == "float" else 0.3)


@torch.no_grad()
def test_a_backend_outlives_changes_of_where_a_model_is_in_memory() -> None:
    config = TransformerConfig.preset("tiny", vocab_size=30, bos_id=1, eos_id=2)
    torch.manual_seed(0)
    model = Transformer(config).eval()
    backend = PackedBackend(model, "int8")
    before = backend.new_decoder([[5, 6, 2]], 1).admit([0])
    model.share_memory()
    assert backend.new_decoder([[5, 6, 2]], 1).admit([0]).equal(before)


@torch.no_grad()
def test_parts_of_a_projection_may_lack_a_bias() -> None:
    query, key = torch.nn.Linear(4, 3, bias=False), torch.nn.Linear(4, 2)
    x_RD = torch.randn(5, 4)
    for parts in ([query, key], [key, query]):
        expected = torch.cat([part(x_RD) for part in parts], dim=1)
        assert torch.allclose(packed_linear(parts, "float")(x_RD), expected, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("rows", [1, 63, 64, 300])
def test_float_products_of_few_and_many_rows_are_those_of_float64(rows: int) -> None:
    torch.manual_seed(rows)
    layer, x_RD = torch.nn.Linear(96, 70), torch.randn(rows, 96)
    expected = x_RD.double() @ layer.weight.double().T + layer.bias.double()
    torch.testing.assert_close(packed_linear([layer], "float")(x_RD).double(), expected, rtol=1e-5, atol=1e-5)


def test_int8_comes_close_and_rows_do_not_depend_on_each_other() -> None:
    config = TransformerConfig.preset("small", vocab_size=500, bos_id=1, eos_id=2, encoder_layers=2, decoder_layers=2)
    torch.manual_seed(0)
    model = Transformer(config).eval()
    sources = [tokens(1, 5 + index, 500)[0].tolist() for index in range(8)]
    words_BN = tokens(8, 2, 500)
    together = {}
    for precision in ("float", "int8"):
        decoder = PackedBackend(model, precision).new_decoder(sources, 2)
        with torch.no_grad():
            decoder.admit(range(8))
            together[precision] = decoder.step(words_BN)
            loud = PackedBackend(model, precision).new_decoder(sources, 2)
            loud.admit([3])
            alone = loud.step(words_BN[3:4])
        # Without kernels, torch's float32 matmul rounds by the shape of a batch, and int8 then to another step.
        exact = precision == "float" or kernels() is not None
        assert (alone[0] - together[precision][3]).abs().max() < (1e-4 if exact else 0.1)
    difference = (together["int8"] - together["float"]).abs().mean() / together["float"].std()
    assert 0.0 < difference < 0.05


def test_a_model_must_know_where_to_start() -> None:
    with pytest.raises(InputError, match="no decoder, or no bos_id and eos_id"):
        PackedBackend(Transformer(TransformerConfig.preset("tiny", vocab_size=20)))


@pytest.mark.skipif(kernels() is None, reason="the kernels were not built: there was no compiler")
@torch.no_grad()
def test_prefixes_are_read_whatever_unwritten_memory_holds() -> None:
    config = TransformerConfig.preset("tiny", vocab_size=50, bos_id=1, eos_id=2)
    torch.manual_seed(0)
    backend = PackedBackend(Transformer(config).eval(), "int8")
    sources, prefixes = [[5, 6, 7, 8, 9, 2], [5, 2], [6, 7, 2]], [(9, 8), (), (7, 6, 5, 4)]
    clean, dirty = (backend.new_decoder(sources, 2) for _ in range(2))
    assert isinstance(clean, PackedDecoder)
    assert isinstance(dirty, PackedDecoder)
    clean._state._new = torch.zeros
    dirty._state._new = lambda *shape, dtype: torch.full(shape, torch.nan, dtype=dtype)  # type: ignore[assignment]
    for decoder in (clean, dirty):
        decoder.admit([1])
    expected, found = (decoder.prefill([0, 1, 2], prefixes) for decoder in (clean, dirty))
    for one, other in zip(expected, found, strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, other)
    words_BN = tokens(4, 2, 50)
    torch.testing.assert_close(clean.step(words_BN), dirty.step(words_BN))
