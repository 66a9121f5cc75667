"""Packed decoders with relative positions and patterns give what the model itself gives."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from regard import Transformer, TransformerConfig
from regard.acceleration import packed_decoder
from regard.acceleration.packed_decoder import PackedBackend
from regard.acceleration.packed_layers import PackedStack
from regard.acceleration.packed_linear import DecodingPrecision
from regard.inference.backends import choose_backend
from regard.inference.generic_decoder import GenericBackend
from regard.kernels.bindings import kernels

VARIATIONS: dict[str, dict[str, Any]] = {
    "alibi": {"positions": "alibi"},
    "rotary": {"positions": "rope"},
    "rotary, scaled, one key head": {
        "num_kv_heads": 1,
        "positions": {"kind": "rope", "scaling": {"kind": "yarn", "factor": 4.0, "original_length": 64}},
    },
    "T5": {"positions": {"kind": "t5", "buckets": 8, "max_distance": 5}},
    "window": {"attention": {"pattern": {"kind": "window", "size": 3, "sinks": 1}}},
    "alibi in a window, two key heads": {
        "positions": "alibi",
        "num_kv_heads": 2,
        "attention": {"pattern": {"kind": "window", "size": 2}},
    },
    "rope in a window": {"positions": "rope", "attention": {"pattern": {"kind": "window", "size": 3}}},
    "sinusoids in a window": {"positions": "sinusoidal", "attention": {"pattern": {"kind": "window", "size": 3}}},
    "another scale": {"attention": {"scale": 0.7}},
}
SOURCES = [[5, 6, 7, 8, 9, 10, 11], [12, 13], [14, 15, 16, 17]]


def model_with(variation: str) -> Transformer:
    torch.manual_seed(3)
    shape = dict(
        vocab_size=60, d_model=32, num_heads=4, d_ff=48, encoder_layers=2, decoder_layers=2, bos_id=1, eos_id=2
    )
    return Transformer(TransformerConfig(**{**shape, **VARIATIONS[variation]})).eval()


def decoded(backend: Any, steps: int = 6, beams: int = 2) -> torch.Tensor:
    """Return the logits of steps in which rows change places, one sentence comes later and another one leaves."""
    decoder = backend.new_decoder(SOURCES, beams)
    first = [decoder.admit([0, 1])]
    tokens = torch.tensor([[20, 21], [22, 23]])
    logits = []
    for step in range(steps):
        logits.append(decoder.step(tokens).clone())
        decoder.reorder(np.array([[1, 0], [0, 0]]) if step % 2 else np.array([[0, 0], [1, 1]]))
        if step == 2:
            first.append(decoder.admit([2]))
            decoder.keep([0, 2])
    return torch.cat([x.flatten() for x in (*first, *logits)])


@pytest.mark.parametrize("variation", VARIATIONS)
def test_the_packed_decoder_gives_the_logits_of_the_model(variation: str) -> None:
    model = model_with(variation).double()
    assert choose_backend(model).name == "packed float64 decoder"
    with torch.inference_mode():
        torch.testing.assert_close(decoded(PackedBackend(model)), decoded(GenericBackend(model)))


@pytest.mark.parametrize("variation", VARIATIONS)
def test_int8_comes_close_to_float(variation: str) -> None:
    model = model_with(variation)
    with torch.inference_mode():
        quantized, exact = (decoded(PackedBackend(model, precision)) for precision in ("int8", "float"))
    difference = (quantized - exact).abs().mean() / exact.std()
    assert 0.0 < difference < 0.05


@pytest.mark.skipif(kernels() is None, reason="there are no kernels here")
@pytest.mark.parametrize("variation", VARIATIONS)
def test_kernels_give_what_the_packed_layers_give_in_int8(variation: str) -> None:
    by_kernels, by_torch = (PackedBackend(model_with(variation), "int8") for _ in range(2))
    assert by_kernels.fast_decoder is not None
    by_torch.fast_decoder = by_torch._fast_encoder = None
    with torch.inference_mode():
        torch.testing.assert_close(decoded(by_kernels), decoded(by_torch), rtol=1e-3, atol=1e-3)


@pytest.mark.skipif(kernels() is None, reason="there are no kernels here")
def test_tables_grow_with_the_sequence() -> None:
    by_kernels, by_torch = (PackedBackend(model_with("alibi"), "int8") for _ in range(2))
    by_torch.fast_decoder = by_torch._fast_encoder = None
    with torch.inference_mode():
        long = [[5 + n % 50 for n in range(600)]]
        states = [backend.read(long)[0] for backend in (by_kernels, by_torch)]
    # Over 600 positions, some numbers are rounded to the next int8 by one and not by the other.
    assert (states[0] - states[1]).abs().mean() < 1e-3


class LargestTensor(TorchDispatchMode):
    """Remembers the number of elements of the largest tensor that is computed."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if isinstance(output, torch.Tensor):
            self.elements = max(self.elements, output.numel())
        return output


@pytest.mark.parametrize("variation", ["window", "T5"])
def test_a_long_source_is_read_in_blocks(variation: str) -> None:
    length = 1500
    backend = PackedBackend(model_with(variation), "float")
    with LargestTensor() as largest:
        backend.new_decoder([[5] * length], beams=1).admit([0])
    assert largest.elements < length * length


@pytest.mark.parametrize("precision", ["float", "int8"])
@pytest.mark.parametrize("variation", [name for name in VARIATIONS if name.endswith("in a window")])
def test_a_long_source_is_read_in_segments_as_it_is_read_at_once(
    variation: str, precision: DecodingPrecision, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, sources = PackedBackend(model_with(variation), precision), [[5, 6, 7, 8] * 16, [9] * 20, [10, 11] * 24]
    whole, _ = backend.read(sources)
    monkeypatch.setattr(packed_decoder, "_SEGMENT", 25)
    with LargestTensor() as largest:
        states, lengths = backend.read(sources)
    assert lengths.tolist() == [64, 20, 48]
    torch.testing.assert_close(states, whole, rtol=1e-4, atol=1e-4 if precision == "float" else 2e-2)
    assert largest.elements < 2 * states.numel()  # queries, keys and values of a source at once are more


def test_only_windows_in_all_layers_bound_what_a_state_depends_on() -> None:
    assert PackedStack(model_with("alibi in a window, two key heads").encoder, "float").reach == 4  # type: ignore[arg-type]
    assert PackedStack(model_with("window").encoder, "float").reach is None  # type: ignore[arg-type]
    assert PackedStack(model_with("T5").encoder, "float").reach is None  # type: ignore[arg-type]
