"""A decoder with a sliding window, Hugging Face's Mistral, with the same weights gives the same logits."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard import Transformer, TransformerConfig
from tests.parity.test_llama import VOCAB, K, in_double, ours_from, rotary_in_double

transformers = pytest.importorskip("transformers", reason="the peer is not installed")


def peer(dtype: torch.dtype, window: int, kv_heads: int, layers: int) -> Any:
    """Make a model with random weights, in all of its parameters."""
    config = transformers.MistralConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        head_dim=K,
        sliding_window=window,
        rope_parameters={"rope_theta": 500.0, "rope_type": "default"},
    )
    model = transformers.MistralForCausalLM(config).to(dtype).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    if dtype == torch.float64:  # their norms and angles are float32, whatever the type of the model
        for module in model.modules():
            if "RMSNorm" in type(module).__name__:
                module.forward = in_double(module)
        model.model.rotary_emb.forward = rotary_in_double(model.model.rotary_emb)
    return model


def with_window(model: Transformer, size: int) -> Transformer:
    """Return the same model with a window."""
    attention = {"pattern": {"kind": "window", "size": size}}
    config = TransformerConfig.model_validate({**model.config.model_dump(), "attention": attention})
    windowed = Transformer(config).to(next(model.parameters()).dtype)
    windowed.load_state_dict(model.state_dict())
    return windowed.eval()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@settings(max_examples=20)
@given(
    window=st.integers(2, 9),
    kv_heads=st.sampled_from([1, 2, 4]),
    layers=st.integers(1, 3),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 40)),
    seed=st.integers(0, 10_000),
)
@torch.no_grad()
def test_logits_agree_in_full_and_from_a_cache(
    dtype: torch.dtype, tolerance: float, window: int, kv_heads: int, layers: int, shape: tuple[int, int], seed: int
) -> None:
    """Their window counts the query itself; ours is what lies before it."""
    torch.manual_seed(seed)
    theirs = peer(dtype, window, kv_heads, layers)
    ours = with_window(ours_from(theirs, None), window - 1)
    tokens = torch.randint(1, VOCAB, shape)
    expected = theirs(input_ids=tokens).logits
    assert (ours(tokens) - expected).abs().max() <= tolerance * expected.abs().max()
    cache = ours.start_cache()
    steps = [ours.logits(ours.decode(part, cache=cache)) for part in tokens.split(3, dim=1)]
    assert (torch.cat(steps, dim=1) - expected).abs().max() <= tolerance * expected.abs().max()
