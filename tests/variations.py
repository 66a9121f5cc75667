"""Models with any combination of positions, patterns, kinds of attention and sharing."""

from collections.abc import Mapping
from typing import Any

import torch
from hypothesis import reject
from hypothesis import strategies as st

from regard import Transformer, TransformerConfig
from regard.errors import RegardError
from regard.model.initialization import NoInitialization
from regard.model.sharing import SHARING
from regard.model.variations import ABSOLUTE, KINDS, PATTERNS, RELATIVE
from tests.strategies import VOCAB

# Options that matter in sequences of a few tokens; a kind that is not listed has its defaults.
_SMALL: dict[str, list[dict[str, Any]]] = {
    "rope": [{}, {"base": 50.0, "scaling": {"kind": "linear", "factor": 2.0}}],
    "t5": [{"buckets": 6, "max_distance": 5}],
    "shaw": [{"max_distance": 2}],
    "window": [{"size": 1}, {"size": 2, "sinks": 1}],
    "longformer": [{"size": 1, "global_tokens": 2}],
    "bigbird": [{"block": 2, "random_blocks": 1}],
    "blocks": [{"block": 8, "rows": ["1000", "1100", "0110", "1011"]}],
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
    stacks = draw(st.sampled_from([(3, 3), (1, 3), (0, 3), (3, 0)]))
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
        with NoInitialization(), torch.device("meta"):
            Transformer(made)
    except RegardError:  # a role without this kind, or two variations that do not go together
        reject()
    return made
