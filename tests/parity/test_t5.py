"""The same weights in Hugging Face's T5, flan-T5 and mT5 give the same logits, from a cache too."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard import ModelError, Transformer
from regard.model.convert import from_huggingface, read_huggingface_directory

transformers = pytest.importorskip("transformers", reason="the peer is not installed")

VOCAB, PAD = 31, 0


def peer(kind: str = "t5", dtype: torch.dtype = torch.float32, *, untied: bool = False, **changes: Any) -> Any:
    """Make a model with random weights, in all of its parameters."""
    fields = dict(
        vocab_size=VOCAB,
        d_model=16,
        d_kv=4,
        d_ff=24,
        num_layers=2,
        num_heads=4,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=10,
        decoder_start_token_id=PAD,
    )
    if kind == "t5":
        model = transformers.T5ForConditionalGeneration(transformers.T5Config(**{**fields, **changes}))
    else:
        model = transformers.MT5ForConditionalGeneration(transformers.MT5Config(**{**fields, **changes}))
    if untied:
        model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    model = model.to(dtype).eval()
    if dtype == torch.float64:
        for module in model.modules():
            if "LayerNorm" in type(module).__name__:
                module.forward = in_double(module)
    return model


def in_double(norm: Any) -> Any:
    """Return their norm in float64: it computes in float32, whatever the type of the model."""
    return lambda x: norm.weight * x * (x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon).rsqrt()


def batch(B: int, S: int, T: int) -> tuple[Tensor, Tensor]:
    source, target = torch.randint(1, VOCAB, (B, S)), torch.randint(1, VOCAB, (B, T))
    source[torch.arange(S) >= torch.randint(1, S + 1, (B,))[:, None]] = PAD
    target[:, 0] = PAD  # what pads also starts a target
    return source, target


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@settings(max_examples=25)
@given(
    kind=st.sampled_from(["t5", "mt5"]),
    depths=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    activation=st.sampled_from(["relu", "gated-gelu", "gated-silu", "gelu"]),
    tied=st.booleans(),
    untied=st.booleans(),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 24), st.integers(1, 24)),
    seed=st.integers(0, 10_000),
)
@torch.no_grad()
def test_logits_agree_in_full_and_from_a_cache(
    dtype: torch.dtype,
    tolerance: float,
    kind: str,
    depths: tuple[int, int],
    activation: str,
    tied: bool,
    untied: bool,
    shape: tuple[int, int, int],
    seed: int,
) -> None:
    """Sources and targets are longer than the largest distance, so that every bucket of both directions is used."""
    torch.manual_seed(seed)
    theirs = peer(
        kind,
        dtype,
        untied=untied,
        num_layers=depths[0],
        num_decoder_layers=depths[1],
        feed_forward_proj=activation,
        tie_word_embeddings=tied,
    )
    ours = from_huggingface(theirs.config.to_dict(), theirs.state_dict())
    assert ours.config.shared_embeddings == ("source-target" if untied else "all")
    source, target = batch(*shape)
    mask = (source != PAD).long()
    expected = theirs(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
    assert (ours(source, target) - expected).abs().max() <= tolerance * expected.abs().max()
    cache = ours.start_cache(ours.encode(source))
    steps = [ours.logits(ours.decode(target[:, t : t + 1], cache=cache)) for t in range(target.size(1))]
    assert (torch.cat(steps, dim=1) - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize("buckets", [(32, 128), (8, 20), (32, 64), (4, 300)])
@torch.no_grad()
def test_buckets_agree_at_every_distance(buckets: tuple[int, int]) -> None:
    theirs = peer(relative_attention_num_buckets=buckets[0], relative_attention_max_distance=buckets[1], num_layers=1)
    ours = from_huggingface(theirs.config.to_dict(), theirs.state_dict())
    tokens = torch.randint(1, VOCAB, (1, 400))
    expected = theirs(input_ids=tokens, decoder_input_ids=tokens).logits
    assert (ours(tokens, tokens) - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize("activation", ["relu", "gated-gelu"])
@torch.no_grad()
def test_a_directory_as_they_save_it(activation: str, tmp_path: Path) -> None:
    theirs = peer(feed_forward_proj=activation, tie_word_embeddings=activation == "relu")
    theirs.save_pretrained(tmp_path / "theirs")
    read_huggingface_directory(tmp_path / "theirs").save(tmp_path / "ours")
    ours = Transformer.load(tmp_path / "ours")
    source, target = batch(2, 7, 5)
    expected = theirs(input_ids=source, attention_mask=(source != PAD).long(), decoder_input_ids=target).logits
    torch.testing.assert_close(ours(source, target), expected, atol=1e-4, rtol=1e-4)


def test_a_configuration_as_it_was_published_says_by_its_tied_embeddings_whether_outputs_are_scaled() -> None:
    theirs = peer()
    published = {key: value for key, value in theirs.config.to_dict().items() if key != "scale_decoder_outputs"}
    gains = []
    for tied in (True, False):
        ours = from_huggingface({**published, "tie_word_embeddings": tied}, theirs.state_dict())
        gains.append(ours.get_parameter("decoder.final_norm.weight"))
    torch.testing.assert_close(gains[0], gains[1] / 4)  # d_model is 16


def test_a_table_that_their_code_does_not_read_is_left_out() -> None:
    theirs = peer()
    state = theirs.state_dict()
    unread = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    from_huggingface(theirs.config.to_dict(), {**state, unread: torch.zeros(8, 4)})


def test_what_cannot_be_read_is_told() -> None:
    theirs = peer()
    config, state = theirs.config.to_dict(), theirs.state_dict()
    with pytest.raises(ModelError, match="feed_forward_proj is 'gated-relu'; it is one of relu, gelu"):
        from_huggingface({**config, "feed_forward_proj": "gated-relu"}, state)
    with pytest.raises(ModelError, match=r"no decoder.block.0"):
        from_huggingface(config, {name: x for name, x in state.items() if not name.startswith("decoder")})
    with pytest.raises(ModelError, match=r"encoder.block.1.layer.1.DenseReluDense.wo.weight is missing"):
        from_huggingface(
            config, {name: x for name, x in state.items() if "encoder.block.1.layer.1.DenseReluDense.wo" not in name}
        )
    with pytest.raises(ModelError, match=r"adapter.weight"):
        from_huggingface(config, {**state, "encoder.adapter.weight": torch.ones(1, 1)})
    with pytest.raises(ModelError, match="max_distance is 3"):
        from_huggingface({**config, "relative_attention_max_distance": 3}, state)
    with pytest.raises(ModelError, match="'umt5'"):
        from_huggingface({**config, "model_type": "umt5"}, state)
    with pytest.raises(ModelError, match="query.weight has shape"):
        from_huggingface({**config, "num_heads": 2}, state)
