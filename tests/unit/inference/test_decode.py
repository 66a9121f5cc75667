import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import count

import pytest
import torch
from torch import Tensor

from regard import Transformer, TransformerConfig
from regard.acceleration.packed_decoder import PackedBackend, PackedDecoder
from regard.acceleration.packed_linear import DecodingPrecision
from regard.decoding import Request, SearchSettings
from regard.errors import InputError, ModelError
from regard.inference.decode import decode, decode_requests


def model_of(**changes: int | None) -> Transformer:
    fields = {"vocab_size": 20, "d_model": 16, "d_ff": 16, "bos_id": 1, "eos_id": 2, **changes}
    return Transformer(TransformerConfig.preset("tiny", **fields))


@pytest.mark.parametrize("beam", [1, 4])
def test_batches_make_no_difference_and_scores_are_the_models(beam: int) -> None:
    model = model_of().double().train()
    sources = [[*torch.randint(3, 20, (length,)).tolist(), 2] for length in (1, 7, 3, 5)]
    together = decode(model, sources, beam=beam)
    assert model.training
    model.eval()
    for source, found in zip(sources, together, strict=True):
        assert decode(model, [source], beam=beam)[0].tokens == found.tokens
        labels = torch.tensor([[*found.tokens, 2]])
        logs = model(torch.tensor([source]), torch.tensor([[1, *found.tokens]])).log_softmax(-1)
        total = logs.gather(2, labels[:, :, None]).sum().item()
        assert found.score == pytest.approx(total / labels.size(1), abs=1e-5)


def test_a_model_must_know_where_to_start() -> None:
    model = Transformer(TransformerConfig.preset("tiny", vocab_size=20))
    with pytest.raises(InputError, match="no bos_id and eos_id"):
        decode(model, [[3, 2]])


@pytest.mark.parametrize("fails", [False, True])
def test_each_module_stays_in_training_or_evaluation_mode(fails: bool) -> None:
    model = model_of(**({} if not fails else {"bos_id": None})).train()
    assert model.encoder is not None
    model.encoder.eval()  # frozen
    before = [module.training for module in model.modules()]
    with pytest.raises(InputError) if fails else nullcontext():
        decode(model, [[5, 6, 2]])
    assert [module.training for module in model.modules()] == before


def test_a_model_of_any_floating_point_type_is_decoded() -> None:
    torch.manual_seed(0)
    model = model_of().eval()
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        (found,) = decode(model.to(dtype), [[5, 6, 2]], beam=2)
        assert all(0 <= token < 20 for token in found.tokens)
        assert found.score < 0.0


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("precision", ["float", "int8"])
def test_several_searches_at_once_find_what_one_finds(precision: DecodingPrecision, three_threads: None) -> None:
    torch.manual_seed(0)
    model = model_of().eval()
    backend = PackedBackend(model.double() if precision == "float" else model, precision)
    sources = [[*torch.randint(3, 20, (1 + number % 9,)).tolist(), 2] for number in range(60)]
    requests = [Request(limit=12)] * len(sources)
    settings = SearchSettings(beam=3)
    # In float32 torch rounds by the number of rows that are computed together; the kernels do not.
    exact = 1e-12 if precision == "float" or backend.uses_kernels else 1e-5
    before = set(threading.enumerate())
    together = decode_requests(backend, sources, requests, settings)
    assert torch.get_num_threads() == 3
    assert set(threading.enumerate()) == before
    for source, found in zip(sources, together, strict=True):
        (alone,) = decode_requests(backend, [source], requests[:1], settings)
        assert [one.tokens for one in found] == [one.tokens for one in alone]
        assert [one.score for one in found] == pytest.approx([one.score for one in alone], abs=exact)


@pytest.mark.parametrize(("sentences", "threads"), [(1, 1), (15, 3)])
def test_a_small_step_of_a_model_without_kernels_has_one_thread(
    sentences: int, threads: int, three_threads: None
) -> None:
    model = model_of(d_model=128, d_ff=64).eval()
    found: list[int] = []
    model.output.register_forward_hook(lambda *_: found.append(torch.get_num_threads()))
    decode(model, [[5, 6, 2]] * sentences)
    assert set(found[-3:]) == {threads}  # the first ones are of the choice of a decoder
    assert torch.get_num_threads() == 3


def test_a_search_that_fails_ends_the_others(three_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of them fails at once; the first have more to do than anybody waits for."""
    inner, started, steps = PackedDecoder.admit, count(1), count()

    def admit(self: PackedDecoder, numbers: Sequence[int]) -> Tensor:
        if next(started) == 3:
            raise ModelError("it is broken")
        return inner(self, numbers)

    def step(self: PackedDecoder, tokens_BN: Tensor) -> Tensor:
        time.sleep(0.01)
        next(steps)
        return torch.zeros(*tokens_BN.shape, 20)

    monkeypatch.setattr(PackedDecoder, "admit", admit)
    monkeypatch.setattr(PackedDecoder, "step", step)
    before = set(threading.enumerate())
    with pytest.raises(ModelError, match="it is broken"):
        decode(model_of().eval(), [[3] * 100 + [2]] * 60)
    assert torch.get_num_threads() == 3
    assert set(threading.enumerate()) == before
    assert next(steps) < 20
