"""Models of every configuration that the config allows, small enough to run hundreds of."""

from collections.abc import Mapping
from typing import Any

import torch
from hypothesis import reject
from hypothesis import strategies as st
from torch import Tensor

from regard import Transformer, TransformerConfig
from regard.errors import RegardError
from regard.model.initialization import Undrawn
from regard.model.sharing import SHARING
from regard.model.variations import ABSOLUTE, KINDS, PATTERNS, RELATIVE

VOCAB, SOURCE_VOCAB, PAD = 23, 19, 0


@st.composite
def configs(draw: st.DrawFn) -> TransformerConfig:
    """Draw a configuration."""
    layers = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (0, 2), (2, 0)]))
    G, per_group = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2), (1, 4)]))
    shared = draw(st.sampled_from(["all", "source-target", "target-output", "none"]))
    separate = shared in ("target-output", "none") and min(layers) > 0 and draw(st.booleans())
    return TransformerConfig(
        vocab_size=VOCAB,
        source_vocab_size=SOURCE_VOCAB if separate else None,
        pad_id=PAD,
        d_model=draw(st.sampled_from([8, 12])),
        encoder_layers=layers[0],
        decoder_layers=layers[1],
        num_heads=G * per_group,
        num_kv_heads=G,
        d_k=draw(st.sampled_from([None, 3])),
        d_v=draw(st.sampled_from([None, 5])),
        d_ff=draw(st.sampled_from([None, 10])),
        activation=draw(st.sampled_from(["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"])),
        bias=draw(st.booleans()),
        norm=draw(st.sampled_from(["layer", "rms"])),
        norm_placement=draw(st.sampled_from(["pre", "post"])),
        norm_eps=draw(st.sampled_from([1e-5, 1e-12, 0.0])),
        final_norm=draw(st.sampled_from([None, True, False])),
        embedding_norm=draw(st.booleans()),
        shared_embeddings=shared,
        embedding_scale=draw(st.booleans()),
        output_bias=draw(st.booleans()),
        positions=draw(st.sampled_from(["sinusoidal", "learned", "none"])),
        max_positions=32,
        position_layout=draw(st.sampled_from(["interleaved", "halves"])),
        position_offset=draw(st.sampled_from([0, 2])),
        dropout=0.3,
        attention_dropout=0.2,
        activation_dropout=0.1,
    )


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


# Options that matter in sequences of a few tokens; a kind that is not listed has its defaults.
_SMALL: dict[str, list[dict[str, Any]]] = {
    "rope": [{}, {"base": 50.0, "scaling": {"kind": "linear", "factor": 2.0}}],
    "t5": [{"buckets": 6, "max_distance": 5}],
    "shaw": [{"max_distance": 2}],
    "window": [{"size": 1}, {"size": 2, "sinks": 1}],
    "linear": [{}, {"feature_map": "softmax"}],
    "performer": [{"features": 6}],
    "linformer": [{"width": 3, "max_length": 24}],
    "nystrom": [{"landmarks": 3, "convolution": 3}],
}
_SHARING: list[dict[str, Any]] = [
    *({"kind": kind} for kind in SHARING),
    {"kind": "cycle-reversed", "layers": 2, "embedding_width": 5},
    {"kind": "sequence", "encoder_decoder": True},
    {"kind": "all", "act": {"threshold": 0.8}},
]


def _tables(registry: Mapping[str, object]) -> list[dict[str, Any]]:
    return [{"kind": kind, **options} for kind in registry for options in _SMALL.get(kind, [{}])]


@st.composite
def varied_configs(draw: st.DrawFn) -> TransformerConfig:
    """Draw a combination of positions, patterns, kinds of attention and sharing; new ones come from the registries."""
    stacks = draw(st.sampled_from([(3, 3), (2, 3), (0, 3), (3, 0)]))
    G, per_group = draw(st.sampled_from([(2, 1), (1, 2), (2, 2)]))
    softmax = draw(st.booleans())  # other kinds have no scores for patterns, biases and caps
    attention: dict[str, Any] = {"qk_norm": draw(st.booleans())}
    if softmax:
        patterns = st.sampled_from(["none", *_tables(PATTERNS)])
        attention |= {role: {"pattern": draw(patterns)} for role in ("encoder", "decoder")}
        attention["softcap"] = draw(st.sampled_from([None, 2.0]))
    else:
        kinds = st.sampled_from(["softmax", *_tables(KINDS)])
        attention |= {role: {"kind": draw(kinds)} for role in ("encoder", "decoder", "cross")}
    positions = [*ABSOLUTE, *_tables(RELATIVE)] if softmax else [*ABSOLUTE, "rope"]
    sharing = draw(st.sampled_from(_SHARING))
    both = stacks[0] == stacks[1]
    config = dict(
        vocab_size=VOCAB,
        bos_id=1,
        eos_id=2,
        d_model=8,
        encoder_layers=stacks[0],
        decoder_layers=stacks[1],
        num_heads=G * per_group,
        num_kv_heads=G,
        d_k=4,
        d_ff=10,
        norm_placement=draw(st.sampled_from(["pre", "post"])),
        positions=draw(st.sampled_from(positions)),
        max_positions=32,
        attention=attention,
        sharing={**sharing, "encoder_decoder": both and sharing.get("encoder_decoder", False)},
    )
    try:
        made = TransformerConfig(**config)
        with Undrawn(), torch.device("meta"):
            Transformer(made)
    except RegardError:  # a role without this kind, or two variations that do not go together
        reject()
    return made
