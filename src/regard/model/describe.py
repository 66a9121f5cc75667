"""Tables of a model: every symbol, its meaning, its shape and its parameters."""

import re
from collections.abc import Mapping, Sequence

from torch import Tensor

from regard.layers import head_width
from regard.layers.kinds.kind import Role
from regard.model.config import TransformerConfig
from regard.model.head_config import ClassificationConfig
from regard.model.variations import (
    ABSOLUTE,
    BigBirdConfig,
    BlocksConfig,
    KindConfig,
    LinearConfig,
    LinformerConfig,
    LongformerConfig,
    NystromConfig,
    PatternConfig,
    PerformerConfig,
    WindowConfig,
    position_kind,
)

# The end of a module's name, what the equations call its weight and its bias, and the weight's shape in our letters.
# The first that fits counts.
_PROJECTIONS = [
    ("tokens", ["E"], "(W, D)"),
    ("attention.positions", ["", ""], ""),
    ("embedding.positions", ["P"], "(max, D)"),
    ("attention.query", ["W_Q", ""], "(H·K, D)"),
    ("attention.key", ["W_K", ""], "(G·K, D)"),
    ("attention.value", ["W_V", ""], "(G·V, D)"),
    ("attention.output", ["W_O", ""], "(D, H·V)"),
    ("feed_forward.expand", ["W_1", "b_1"], "(F, D)"),
    ("feed_forward.gate", ["gate", ""], "(F, D)"),
    ("feed_forward.contract", ["W_2", "b_2"], "(D, F)"),
    ("attention.query_norm", ["γ"], "(K)"),
    ("attention.key_norm", ["γ"], "(K)"),
    ("norm", ["γ", "β"], "(D)"),
    ("halting.probability", ["halting", ""], "(1, D)"),
    ("pointer.query", ["W_Q", ""], "(64, D)"),
    ("pointer.key", ["W_K", ""], "(64, D)"),
    ("output.generate", ["p_gen", ""], "(1, D)"),
    ("output.linear", ["", ""], ""),
    ("output", ["output", ""], "(W, D)"),
]
_FACTORIZED = {"tokens": (["E", "E→D"], "(W, E), (D, E)"), "output": (["output", "", ""], "(W, E), (D, E)")}


def describe(config: TransformerConfig, parameters: Mapping[str, Tensor]) -> str:
    """Return the tables for a model of this configuration with these parameters, at most 80 columns wide."""
    total = sum(tensor.numel() for tensor in parameters.values())
    norms = {"pre": "norms before the sublayers", "post": "norms after the residuals"}[config.norm_placement]
    sections = [
        f"Transformer, {config.kind}{_head(config)}: {total:,} parameters\n"
        f"{config.encoder_layers} + {config.decoder_layers} layers{_shared(config)}, {norms}, {config.activation}",
        _section("Symbols", ["ours", "equation", "meaning", "size"], _symbols(config)),
        _section(
            "Parameters\nWeights are stored transposed to the equations: a head's W_Q, (d_model, d_k),\n"
            "is K rows of ours. A * stands for the number of a layer.",
            ["matrix", "equation", "letters", "shape", "copies", "parameters"],
            [*_parameter_rows(config, parameters), ["all", "", "", "", "", f"{total:,}"]],
        ),
        _section("What flows through it", ["tensor", "equation", "meaning", "shape"], _flow(config)),
        _section("Which tokens attend to which", ["layer", "attention", "mask"], _attentions(config)),
    ]
    return "\n\n".join(sections)


def _sizes(config: TransformerConfig) -> dict[str, int]:
    return {
        "D": config.d_model,
        "H": config.num_heads,
        "G": config.num_kv_heads or config.num_heads,
        "K": head_width(config.d_model, config.num_heads, "d_k", config.d_k),
        "V": head_width(config.d_model, config.num_heads, "d_v", config.d_v),
        "F": config.d_ff or 4 * config.d_model,
        "W": config.vocab_size,
    }


def _symbols(config: TransformerConfig) -> list[list[str]]:
    size = {letter: f"{n:,}" for letter, n in _sizes(config).items()}
    vocabulary = [["W", "Vocab", "tokens in the vocabulary", size["W"]]]
    if config.source_size != config.vocab_size:
        vocabulary = [
            ["W", "Vocab", "tokens in the target vocabulary", size["W"]],
            ["", "", "tokens in the source vocabulary", f"{config.source_size:,}"],
        ]
    return [
        ["B", "", "sentences in a batch", "any"],
        ["T", "T", "target length, or queries", "any"],
        ["S", "T′", "source length, or keys", "any"],
        ["D", "d_model", "width of the model", size["D"]],
        ["H", "P, h", "heads", size["H"]],
        ["G", "", "key and value heads", size["G"]],
        ["K", "d_k", "width of a head's queries and keys", size["K"]],
        ["V", "d_v", "width of a head's values", size["V"]],
        ["F", "", "width of the feed-forward's hidden layer", size["F"]],
        *vocabulary,
        ["L", "", "layers, encoder + decoder", f"{config.encoder_layers} + {config.decoder_layers}"],
    ]


def _shared(config: TransformerConfig) -> str:
    """Return how many of the layers are distinct, where some are shared."""
    stacks = (config.encoder_layers, config.decoder_layers)
    distinct = [config.sharing.distinct(depth) for depth in stacks]
    return "" if distinct == list(stacks) else f" ({distinct[0]} + {distinct[1]} distinct)"


def _head(config: TransformerConfig) -> str:
    return "" if config.head is None else f" with a {config.head.kind} head"


def _parameter_rows(config: TransformerConfig, parameters: Mapping[str, Tensor]) -> list[list[str]]:
    """Return a row for each module, under the name of the one it is part of; layers that are alike are copies."""
    modules: dict[str, list[Tensor]] = {}
    for name, tensor in parameters.items():
        modules.setdefault(name.rpartition(".")[0], []).append(tensor)
    alike: dict[str, list[list[Tensor]]] = {}
    for module, tensors in modules.items():
        alike.setdefault(re.sub(r"\.\d+\.", ".*.", module), []).append(tensors)

    rows: list[list[str]] = []
    heading = ""
    for module, copies in alike.items():
        fitting = ((names, letters) for end, names, letters in _PROJECTIONS if module.endswith(end))
        names, letters = next(fitting, ([], ""))
        parent, _, name = module.rpartition(".")
        if config.sharing.embedding_width is not None and "attention" not in parent:
            names, letters = _FACTORIZED.get(name, (names, letters))
        if parent and parent != heading:
            rows.append([parent])
        heading = parent
        symbols = ", ".join(filter(None, names[: len(copies[0])]))
        shape = " + ".join(_shape(tensor.shape) for tensor in copies[0])
        count = sum(tensor.numel() for tensors in copies for tensor in tensors)
        rows.append([f"  {name}" if parent else name, symbols, letters, shape, str(len(copies)), f"{count:,}"])
    return rows


def _flow(config: TransformerConfig) -> list[list[str]]:
    z = _sizes(config)
    D, H, G, K, V = (z[letter] for letter in "DHGKV")
    scores = _scores(config, H, K)
    kind = position_kind(config.positions)
    position = [["positions", "P", f"{kind}, added to X and to Y", _shape(("T", D))]]
    if kind not in ABSOLUTE:
        position = [["positions", "", f"{kind}, part of self-attention", "any"]]
    encoder = [
        ["embedded source", "X + P", "input to the encoder", _shape(("B", "S", D))],
        ["memory", "g_{1:T′}", "encoder output", _shape(("B", "S", D))],
    ]
    decoder = [
        ["embedded target", "Y + P", "input to the decoder", _shape(("B", "T", D))],
        ["states", "h_{1:T}", "decoder output", _shape(("B", "T", D))],
    ]
    heads = _shape(("B", H, "T", V))
    attention = [
        ["x", "H", "what a layer attends from or to", _shape(("B", "T or S", D))],
        ["query_BHTK", "Q^p", "queries", _shape(("B", H, "T", K))],
        ["key_BGSK", "K^p", "keys", _shape(("B", G, "S", K))],
        ["value_BGSV", "V^p", "values", _shape(("B", G, "S", V))],
        *scores,
        ["heads_BHTV", "head_p", "weighted sums of values" if scores else "outputs of the heads", heads],
        ["concatenated", "Concat", "all heads side by side", _shape(("B", "T", H * V))],
        ["output", "MultiHead", "combined attention", _shape(("B", "T", D))],
    ]
    stacks = (encoder if config.encoder_layers else []) + (decoder if config.decoder_layers else [])
    return [*attention, *(position if kind != "none" else []), *stacks, _logits(config)]


def _scores(config: TransformerConfig, H: int, K: int) -> list[list[str]]:
    """Return rows for scores, mask and weights; none where no role of attention has scores."""
    roles, scale = _roles(config), config.attention.scale
    with_scores = [role for role in roles if config.attention.kind_of(role) == "softmax"]
    if not with_scores:
        return []
    shape = _shape(("B", H, "T", "S"))
    equation, scaled = "QKᵀ/√d_k", f"scaled by 1/√{K} = {K**-0.5:.4g}"
    if scale is not None:
        equation, scaled = "QKᵀ·scale", f"scaled by {scale:.4g}"
    where = [] if with_scores == roles else [["", "", f"(scores in {', '.join(with_scores)} only)", ""]]
    return [
        ["scores_BHTS", equation, scaled, shape],
        ["mask", "M", "boolean; 0 or -∞ in the equation", "(B, H, T, S)"],
        ["weights_BHTS", "softmax", "each row sums to 1", shape],
        *where,
    ]


def _logits(config: TransformerConfig) -> list[str]:
    if isinstance(config.head, ClassificationConfig):
        return ["logits", "", "scores of the labels", _shape(("B", config.head.labels))]
    if config.head is not None:
        return ["logits", "", "scores of starts and ends", _shape(("B", "S", 2))]
    length = "T" if config.decoder_layers else "S"
    return ["logits", "", "scores of the vocabulary", _shape(("B", length, config.vocab_size))]


def _attentions(config: TransformerConfig) -> list[list[str]]:
    """Return a row for each role of attention, with its mask, and further rows with its pattern and its kind."""
    rows = []
    for role in _roles(config):
        pattern, kind = config.attention.pattern_of(role), config.attention.kind_of(role)
        layer, attention, mask = _ROLES[role]
        if role == "encoder" and pattern is None:
            mask += "; else bidirectional"
        said = [*_pattern_texts(pattern, role), *([] if kind == "softmax" else [_kind_text(kind)])]
        rows += [[layer, attention, mask], *(["", "", text] for text in said)]
    return rows


_ROLES: dict[Role, tuple[str, str, str]] = {
    "encoder": ("encoder", "self: source to source", "padding of the source"),
    "decoder": ("decoder", "self: target to target", "causal"),
    "cross": ("decoder", "cross: target to source", "padding of the source"),
}
"""The layer, the attention and the mask of each role."""


def _roles(config: TransformerConfig) -> list[Role]:
    """Return the roles that attention has in a model."""
    has_encoder, has_decoder = config.encoder_layers > 0, config.decoder_layers > 0
    there: dict[Role, bool] = {"encoder": has_encoder, "decoder": has_decoder, "cross": has_encoder and has_decoder}
    return [role for role, is_there in there.items() if is_there]


def _pattern_texts(pattern: PatternConfig | None, role: Role) -> list[str]:
    """Return which keys a sparse pattern leaves, in lines of at most 46 characters."""
    side = "to each side" if role == "encoder" else "before the query"
    match pattern:
        case WindowConfig():
            sinks = [f"and the first {pattern.sinks:,} positions"] if pattern.sinks else []
            return [f"window of {pattern.size:,} keys {side}", *sinks]
        case LongformerConfig():
            return [
                f"Longformer: window of {pattern.size:,} keys {side}",
                f"and {pattern.global_tokens:,} global tokens",
            ]
        case BigBirdConfig():
            return [
                f"BigBird, blocks of {pattern.block:,}: {pattern.window_blocks:,} {side},",
                f"{pattern.global_blocks:,} global, {pattern.random_blocks:,} random",
            ]
        case BlocksConfig():
            return [f"matrix of {len(pattern.rows):,} by {len(pattern.rows):,} blocks of {pattern.block:,}"]
    return []


def _kind_text(kind: KindConfig) -> str:
    """Return what is computed in place of the softmax over all keys."""
    match kind:
        case LinearConfig():
            gating = "" if kind.gating == "none" else f", gating {kind.gating}"
            return f"linear attention, features {kind.feature_map}{gating}"
        case PerformerConfig():
            return f"Performer, {kind.features:,} random features"
        case LinformerConfig():
            return f"Linformer, {kind.width:,} mixtures of positions"
        case NystromConfig():
            return f"Nyströmformer, {kind.landmarks:,} landmarks"
    return "softmax"


def _shape(sizes: Sequence[int | str]) -> str:
    return f"({', '.join(str(size) for size in sizes)})"


def _section(title: str, header: list[str], rows: list[list[str]]) -> str:
    """Return a table in columns, numbers to the right; a row of one cell is a heading and takes the whole line."""
    table = [header, *(row for row in rows if len(row) > 1)]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    to_the_right = [header[column] in ("size", "copies", "parameters") for column in range(len(header))]

    def line(cells: list[str]) -> str:
        if len(cells) == 1:
            return cells[0]
        aligned = zip(cells, widths, to_the_right, strict=True)
        return "  ".join(cell.rjust(w) if right else cell.ljust(w) for cell, w, right in aligned).rstrip()

    return "\n".join([title, line(header), line(["─" * width for width in widths]), *map(line, rows)])
