"""Models of every configuration that the config allows, small enough to run hundreds of."""

from random import Random
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from regard import Transformer, TransformerConfig

VOCAB, SOURCE_VOCAB, PAD = 23, 19, 0
ABSOLUTE: list[Any] = ["sinusoidal", "learned", "none"]
ROTARY: list[Any] = ["rope", {"kind": "rope", "scaling": {"kind": "yarn", "factor": 4.0, "original_length": 64}}]
RELATIVE: list[Any] = [
    *ROTARY,
    "alibi",
    {"kind": "t5", "buckets": 8, "max_distance": 6},
    {"kind": "shaw", "max_distance": 2},
]
RANDOMIZED: list[Any] = ["sinusoidal", "learned", *ROTARY]
ATTENTION: list[dict[str, Any]] = [{}, {"qk_norm": True}, {"softcap": 2.0}, {"scale": 1.0}]


@st.composite
def configs(draw: st.DrawFn, relative: bool = False) -> TransformerConfig:
    """Draw a configuration, of the paper's attention or also with relative positions, QK-norm and soft-capping."""
    layers = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (0, 2), (2, 0)]))
    G, per_group = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2), (1, 4)]))
    shared = draw(st.sampled_from(["all", "source-target", "target-output", "none"]))
    separate = shared in ("target-output", "none") and min(layers) > 0 and draw(st.booleans())
    positions = draw(st.sampled_from([*ABSOLUTE, *(RELATIVE if relative else ())]))
    odd = positions not in ROTARY and draw(st.booleans())
    d_k = 3 if odd else draw(st.sampled_from([None, 6])) if positions not in ROTARY else 6
    return TransformerConfig(
        vocab_size=VOCAB,
        source_vocab_size=SOURCE_VOCAB if separate else None,
        pad_id=PAD,
        d_model=draw(st.sampled_from([8, 12])),
        encoder_layers=layers[0],
        decoder_layers=layers[1],
        num_heads=G * per_group,
        num_kv_heads=G,
        d_k=d_k,
        d_v=draw(st.sampled_from([None, 5])),
        d_ff=draw(st.sampled_from([None, 10])),
        activation=draw(st.sampled_from(["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_tanh"])),
        bias=draw(st.booleans()),
        norm=draw(st.sampled_from(["layer", "rms"])),
        norm_placement=draw(st.sampled_from(["pre", "post"])),
        norm_eps=draw(st.sampled_from([1e-5, 1e-12, 0.0])),
        final_norm=draw(st.sampled_from([None, True, False])),
        embedding_norm=draw(st.booleans()),
        shared_embeddings=shared,
        embedding_scale=draw(st.booleans()),
        output_bias=draw(st.booleans()),
        positions=positions,
        random_positions=draw(st.sampled_from([None, 20])) if positions in RANDOMIZED and relative else None,
        attention=draw(st.sampled_from(ATTENTION)) if relative else {},
        max_positions=32,
        position_layout=draw(st.sampled_from(["interleaved", "halves"])),
        position_offset=draw(st.sampled_from([0, 2])),
        dropout=0.3,
        attention_dropout=0.2,
        activation_dropout=0.1,
    )


@st.composite
def pattern_tables(draw: st.DrawFn) -> dict[str, object]:
    """Draw the table of a sparse pattern, for sequences of up to 40 positions."""
    counts = st.integers(0, 2)
    kind = draw(st.sampled_from(["window", "longformer", "bigbird", "blocks"]))
    if kind == "window":
        return {"kind": kind, "size": draw(st.integers(1, 4)), "sinks": draw(counts)}
    if kind == "longformer":
        return {"kind": kind, "size": draw(st.integers(1, 4)), "global_tokens": draw(st.integers(1, 3))}
    block = draw(st.integers(1, 3))
    if kind == "bigbird":
        names = ("window_blocks", "global_blocks", "random_blocks", "seed")
        return {"kind": kind, "block": block, **{name: draw(counts) for name in names}}
    count, draw_bit = -(-40 // block), Random(draw(st.integers(0, 99))).randrange
    return {"kind": kind, "block": block, "rows": [[draw_bit(2) for _ in range(count)] for _ in range(count)]}


@st.composite
def sparse_configs(draw: st.DrawFn) -> TransformerConfig:
    """Draw a configuration with a sparse pattern in the encoder, in the decoder, or another one in each."""
    config, roles = draw(configs()), draw(st.sampled_from(["both", "encoder", "decoder", "each"]))
    attention: dict[str, object] = {}
    if roles == "both":
        attention = {"pattern": draw(pattern_tables())}
    for role in ("encoder", "decoder"):
        if roles in (role, "each"):
            attention[role] = {"pattern": draw(pattern_tables())}
    positions = draw(st.sampled_from([config.positions, "alibi"]))
    return TransformerConfig.model_validate({**config.model_dump(), "attention": attention, "positions": positions})


def model_of(config: TransformerConfig, seed: int = 0, dtype: torch.dtype = torch.float64) -> Transformer:
    """Build a model for inference whose every parameter, biases and norms too, does something."""
    torch.manual_seed(seed)
    model = Transformer(config).to(dtype).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def tokens(rows: int, length: int, vocab: int) -> Tensor:
    """Draw tokens that are not padding."""
    return torch.randint(1, vocab, (rows, length))
