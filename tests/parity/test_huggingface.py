"""The same weights in Hugging Face's Marian and BART give the same logits."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import ModelError, Transformer
from regard.model.convert import from_huggingface, read_huggingface_directory

transformers = pytest.importorskip("transformers", reason="the peer is not installed")

VOCAB, PAD = 31, 30


def peer(kind: str, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    """Make a model with random weights, in all of its parameters."""
    fields = dict(
        vocab_size=VOCAB,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        max_position_embeddings=12,
        pad_token_id=PAD,
        decoder_start_token_id=PAD,
        eos_token_id=0,
        forced_eos_token_id=0,
    )
    if kind == "marian":
        model = transformers.MarianMTModel(transformers.MarianConfig(**{**fields, **changes}))
    else:
        model = transformers.BartForConditionalGeneration(transformers.BartConfig(**{**fields, **changes}))
    model = model.to(dtype).eval()
    for name, parameter in model.named_parameters():
        if kind == "bart" or "embed_positions" not in name:
            torch.nn.init.normal_(parameter, std=0.4)
    model.final_logits_bias.normal_()
    return model


@pytest.mark.parametrize("kind", ["marian", "bart"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@settings(max_examples=25)
@given(
    depths=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    heads=st.sampled_from([1, 2, 4]),
    activation=st.sampled_from(["relu", "gelu", "swish", "silu", "gelu_new"]),
    scale=st.booleans(),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 12), st.integers(1, 12)),
    seed=st.integers(0, 10_000),
)
@torch.no_grad()
def test_logits_agree(
    kind: str,
    dtype: torch.dtype,
    tolerance: float,
    depths: tuple[int, int],
    heads: int,
    activation: str,
    scale: bool,
    shape: tuple[int, int, int],
    seed: int,
) -> None:
    torch.manual_seed(seed)
    theirs = peer(
        kind,
        dtype,
        encoder_layers=depths[0],
        decoder_layers=depths[1],
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        activation_function=activation,
        scale_embedding=scale,
    )
    ours = from_huggingface(theirs.config.to_dict(), theirs.state_dict())
    B, S, T = shape
    source, target = torch.randint(0, PAD, (B, S)), torch.randint(0, PAD, (B, T))
    source[torch.arange(S) >= torch.randint(1, S + 1, (B,))[:, None]] = PAD
    target[:, 0] = PAD  # both families start a target with a token that other models pad with
    mask = (source != PAD).long()
    expected = theirs(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
    assert (ours(source, target) - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize("kind", ["marian", "bart"])
@pytest.mark.parametrize("tied", [True, False])
@torch.no_grad()
def test_a_directory_as_they_save_it(kind: str, tied: bool, tmp_path: Path) -> None:
    theirs = peer(kind, tie_word_embeddings=tied)
    theirs.save_pretrained(tmp_path / "theirs")
    read_huggingface_directory(tmp_path / "theirs").save(tmp_path / "ours")
    ours = Transformer.load(tmp_path / "ours")
    assert ours.config.shared_embeddings == ("all" if tied else "none")
    source, target = torch.randint(0, PAD, (2, 7)), torch.randint(0, PAD, (2, 5))
    expected = theirs(input_ids=source, decoder_input_ids=target).logits
    torch.testing.assert_close(ours(source, target), expected, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_marian_with_two_vocabularies() -> None:
    theirs = peer(
        "marian", share_encoder_decoder_embeddings=False, tie_word_embeddings=False, decoder_vocab_size=VOCAB + 4
    )
    ours = from_huggingface(theirs.config.to_dict(), theirs.state_dict())
    assert (ours.config.source_size, ours.config.vocab_size) == (VOCAB, VOCAB + 4)
    source, target = torch.randint(0, PAD, (2, 7)), torch.randint(0, PAD, (2, 5))
    expected = theirs(input_ids=source, decoder_input_ids=target).logits
    torch.testing.assert_close(ours(source, target), expected, atol=1e-5, rtol=1e-5)


def test_sinusoids_go_on_where_their_table_ends() -> None:
    theirs = peer("marian")
    ours = from_huggingface(theirs.config.to_dict(), theirs.state_dict())
    assert ours(torch.randint(0, PAD, (1, 500)), torch.randint(0, PAD, (1, 400))).shape == (1, 400, VOCAB)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sinusoids_are_known_in_half_precision_too(dtype: torch.dtype) -> None:
    theirs = peer("marian", dtype)
    assert from_huggingface(theirs.config.to_dict(), theirs.state_dict()).config.positions == "sinusoidal"


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    theirs = peer("bart")
    config, state = theirs.config.to_dict(), theirs.state_dict()
    with pytest.raises(ModelError, match="'pegasus'"):
        from_huggingface({**config, "model_type": "pegasus"}, state)
    with pytest.raises(ModelError, match="'gelu_10'"):
        from_huggingface({**config, "activation_function": "gelu_10"}, state)
    with pytest.raises(ModelError, match="attention heads"):
        from_huggingface({**config, "encoder_attention_heads": 2}, state)
    with pytest.raises(ModelError, match=r"encoder.layers.0.fc1.weight is missing"):
        from_huggingface(config, {name: x for name, x in state.items() if "encoder.layers.0.fc1" not in name})
    with pytest.raises(ModelError, match=r"adapter.weight"):
        from_huggingface(config, {**state, "model.adapter.weight": torch.ones(1, 1)})
    with pytest.raises(ModelError, match=r"\['gelu'\]"):
        from_huggingface({**config, "activation_function": ["gelu"]}, state)
    with pytest.raises(ModelError, match="no encoder.layers.0"):
        from_huggingface(config, {name: x for name, x in state.items() if "encoder.layers" not in name})
    with pytest.raises(ModelError, match="embed_positions.weight is missing"):
        from_huggingface(config, {name: x for name, x in state.items() if "embed_positions" not in name})
    with pytest.raises(ModelError, match="torch.int8"):
        from_huggingface(config, {name: x.to(torch.int8) for name, x in state.items()})
    with pytest.raises(ModelError, match=r"shared.weight has shape \(3,\)"):
        from_huggingface(config, {**state, "model.shared.weight": torch.ones(3)})
    (tmp_path / "config.json").write_text('{"model_type": "bart"}')
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match="a pickle"):
        read_huggingface_directory(tmp_path)
