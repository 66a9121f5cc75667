"""A rotary decoder, Hugging Face's Llama, with the same weights gives the same logits: RoPE, GQA, RMSNorm, SwiGLU."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard import Transformer, TransformerConfig
from regard.layers.positions import RotaryPositions
from regard.layers.positions.rotary import LinearScaling, NtkScaling, Scaling, YarnScaling

transformers = pytest.importorskip("transformers", reason="the peer is not installed")

VOCAB, K = 29, 8
SCALINGS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "none": ({"rope_type": "default"}, None),
    "linear": ({"rope_type": "linear", "factor": 4.0}, {"kind": "linear", "factor": 4.0}),
    "yarn": (
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        {"kind": "yarn", "factor": 4.0, "original_length": 64},
    ),
}


def peer(dtype: torch.dtype, scaling: dict[str, Any], kv_heads: int, layers: int) -> Any:
    """Make a model with random weights, in all of its parameters."""
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        head_dim=K,
        max_position_embeddings=256,
        rope_parameters={"rope_theta": 500.0, **scaling},
    )
    model = transformers.LlamaForCausalLM(config).to(dtype).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    if dtype == torch.float64:  # their norms and angles are float32, whatever the type of the model
        for module in model.modules():
            if "RMSNorm" in type(module).__name__:
                module.forward = in_double(module)
        model.model.rotary_emb.forward = rotary_in_double(model.model.rotary_emb)
    return model


def in_double(norm: Any) -> Any:
    return lambda x: norm.weight * x * (x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon).rsqrt()


def rotary_in_double(rotary: Any) -> Any:
    """Return their cosines and sines in float64, frequencies included."""
    compute = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS.get(
        rotary.rope_type, rotary.compute_default_rope_parameters
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "float", torch.float64)
        frequencies, factor = compute(rotary.config)

    def forward(x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angles = position_ids[..., None].double() * frequencies
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos() * factor, angles.sin() * factor

    return forward


def ours_from(theirs: Any, scaling: dict[str, Any] | None) -> Transformer:
    config = theirs.config
    model = Transformer(
        TransformerConfig(
            vocab_size=VOCAB,
            d_model=config.hidden_size,
            encoder_layers=0,
            decoder_layers=config.num_hidden_layers,
            num_heads=config.num_attention_heads,
            num_kv_heads=config.num_key_value_heads,
            d_k=K,
            d_v=K,
            d_ff=config.intermediate_size,
            activation="swiglu",
            bias=False,
            norm="rms",
            norm_placement="pre",
            norm_eps=config.rms_norm_eps,
            shared_embeddings="none",
            embedding_scale=False,
            positions={"kind": "rope", "base": 500.0, "scaling": scaling},
        )
    ).to(theirs.dtype)
    names = {
        "target_embedding.tokens": "model.embed_tokens",
        "decoder.final_norm": "model.norm",
        "output": "lm_head",
        "self_attention.query": "self_attn.q_proj",
        "self_attention.key": "self_attn.k_proj",
        "self_attention.value": "self_attn.v_proj",
        "self_attention.output": "self_attn.o_proj",
        "self_attention_residual.norm": "input_layernorm",
        "feed_forward.gate": "mlp.gate_proj",
        "feed_forward.expand": "mlp.up_proj",
        "feed_forward.contract": "mlp.down_proj",
        "feed_forward_residual.norm": "post_attention_layernorm",
    }
    state = {}
    for name in model.state_dict():
        prefix, rest = ("", name) if ".layers." not in name else (name[: name.index(".", 15) + 1], "")
        rest = rest or name.removeprefix(prefix)
        state[name] = theirs.state_dict()[
            prefix.replace("decoder.", "model.") + names[rest.removesuffix(".weight")] + ".weight"
        ]
    model.load_state_dict(state)
    return model.eval()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@settings(max_examples=20)
@given(
    scaling=st.sampled_from(sorted(SCALINGS)),
    kv_heads=st.sampled_from([1, 2, 4]),
    layers=st.integers(1, 3),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 40)),
    seed=st.integers(0, 10_000),
)
@torch.no_grad()
def test_logits_agree_in_full_and_from_a_cache(
    dtype: torch.dtype, tolerance: float, scaling: str, kv_heads: int, layers: int, shape: tuple[int, int], seed: int
) -> None:
    torch.manual_seed(seed)
    peers, own = SCALINGS[scaling]
    theirs = peer(dtype, peers, kv_heads, layers)
    ours = ours_from(theirs, own)
    tokens = torch.randint(1, VOCAB, shape)
    expected = theirs(input_ids=tokens).logits
    assert (ours(tokens) - expected).abs().max() <= tolerance * expected.abs().max()
    cache = ours.start_cache()
    steps = [ours.logits(ours.decode(part, cache=cache)) for part in tokens.split(3, dim=1)]
    assert (torch.cat(steps, dim=1) - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize(
    ("scaling", "parameters"),
    [
        (LinearScaling(3.0), {"rope_type": "linear", "factor": 3.0}),
        (YarnScaling(8.0, 2048), {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 2048}),
        (
            YarnScaling(16.0, 4096, beta_fast=20.0, beta_slow=2.0, attention_factor=1.1),
            {
                "rope_type": "yarn",
                "factor": 16.0,
                "original_max_position_embeddings": 4096,
                "beta_fast": 20.0,
                "beta_slow": 2.0,
                "attention_factor": 1.1,
            },
        ),
        # Theirs grows with the sequence; ours is what theirs is for sequences that are so many times as long.
        (NtkScaling(4.0), {"rope_type": "dynamic", "factor": 1.0}),
    ],
)
def test_frequencies_are_theirs(scaling: Scaling, parameters: dict[str, Any]) -> None:
    config = transformers.LlamaConfig(
        hidden_size=512,
        num_attention_heads=4,
        max_position_embeddings=4096,
        rope_parameters={"rope_theta": 10_000.0, **parameters},
    )
    compute = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS[parameters["rope_type"]]
    frequencies, factor = compute(config, seq_len=4 * 4096)
    ours = RotaryPositions(128, scaling=scaling)
    assert ours.frequencies == pytest.approx(frequencies.tolist(), rel=1e-5)
    assert ours.attention_factor == pytest.approx(factor)
