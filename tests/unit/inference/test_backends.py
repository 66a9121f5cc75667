from typing import Any

import pytest

from regard import Transformer, TransformerConfig
from regard.acceleration.packed_decoder import PackedBackend
from regard.inference.backends import choose_backend, drops_units


def model_of(**changes: float) -> Transformer:
    return Transformer(TransformerConfig.preset("tiny", vocab_size=20, bos_id=1, eos_id=2, **changes))


def test_a_model_in_training_mode_without_dropout_drops_nothing() -> None:
    model = model_of(dropout=0.0).train()
    assert not drops_units(model)
    assert isinstance(choose_backend(model), PackedBackend)


@pytest.mark.parametrize("rate", ["dropout", "attention_dropout"])
def test_a_model_in_training_mode_with_dropout_drops_units(rate: str) -> None:
    model = model_of(dropout=0.0).train()
    assert model.decoder is not None
    layer: Any = model.decoder.layers[0]
    if rate == "dropout":
        layer.feed_forward.dropout.rate = 0.1
    else:
        layer.self_attention.dropout = 0.1
    assert drops_units(model)
    assert choose_backend(model).name == "generic decoder (dropout is on; model.eval() turns it off)"
    assert not drops_units(model.eval())
