from typing import Any

import pytest

from regard import ConfigError, TransformerConfig


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (dict(d_modl=8), "d_modl is not a known key; did you mean d_model?"),
        (dict(vocab_size=0), "vocab_size is 0"),
        (dict(d_model=30), "d_model 30 is not divisible by num_heads 8"),
        (dict(num_heads=8, num_kv_heads=3), "num_heads 8 is not divisible by num_kv_heads 3"),
        (dict(encoder_layers=0, decoder_layers=0), "both 0"),
        (dict(source_vocab_size=5), "source_vocab_size is 5 and vocab_size 10"),
        (dict(source_vocab_size=5, encoder_layers=0, shared_embeddings="none"), "one vocabulary"),
        (dict(pad_id=10), "pad_id 10"),
        (dict(eos_id=11), "eos_id 11"),
        (dict(dropout=1.0), "dropout is 1.0"),
        (dict(activation="tanh"), "activation is 'tanh'"),
        (dict(norm_eps=float("nan")), "norm_eps is nan"),
        (dict(vocab_size=True), "vocab_size is True"),
        (dict(d_model="8"), "d_model is '8'"),
        (dict(bias="no"), "bias is 'no'"),
        (dict(vocab_size=10**20), "vocab_size is 100000000000000000000"),
    ],
)
def test_what_is_wrong_is_one_sentence_that_names_it(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TransformerConfig(**{"vocab_size": 10, **fields})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_d_model_need_not_divide_where_heads_are_given() -> None:
    assert TransformerConfig(vocab_size=10, d_model=30, d_k=4, d_v=4).d_model == 30


def test_configs_are_frozen_and_presets_take_changes() -> None:
    config = TransformerConfig.preset("base", vocab_size=10, dropout=0.2)
    assert (config.d_model, config.dropout) == (512, 0.2)
    assert config == TransformerConfig(vocab_size=10, d_ff=2048, dropout=0.2)
    with pytest.raises(Exception, match="frozen"):
        config.d_model = 3  # type: ignore[misc]
    with pytest.raises(ConfigError, match="'huge'.*tiny, small, base, big"):
        TransformerConfig.preset("huge", vocab_size=10)
    with pytest.raises(ConfigError, match="vocab_size is missing"):
        TransformerConfig.preset("base")


def test_a_sequence_ends_where_the_first_of_its_limits_is() -> None:
    blocks = {"kind": "blocks", "rows": ["10", "11"], "block": 8}
    linformer = {"kind": "linformer", "max_length": 30}
    config = TransformerConfig(
        vocab_size=9,
        positions="learned",
        max_positions=20,
        attention={"encoder": {"kind": linformer}, "decoder": {"pattern": blocks}},
    )
    assert config.limits() == {
        "model.max_positions": 20,
        "model.attention.encoder.kind": 30,
        "model.attention.decoder.pattern": 16,
    }
    assert config.longest == 16
    assert TransformerConfig(vocab_size=9).longest is None
