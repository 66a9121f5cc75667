"""From Hugging Face: Marian and BART, which name their weights alike, and the T5 family."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.errors import ConfigError, ModelError
from regard.files import read_json
from regard.layers import Embedding, SinusoidalPositions
from regard.layers.positions.absolute import is_close
from regard.model.config import TransformerConfig
from regard.model.convert.t5 import T5_KINDS, from_t5
from regard.model.convert.weights import ForeignWeights, assemble, layer_count, sharing
from regard.model.directory import CONFIG_FILE, WEIGHTS_FILE, read_weights
from regard.model.transformer import Transformer
from regard.ops import sinusoidal_positions

_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
_ATTENTIONS = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
_PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
_OTHERS = {
    "self_attention_residual.norm": "self_attn_layer_norm",
    "cross_attention_residual.norm": "encoder_attn_layer_norm",
    "feed_forward.expand": "fc1",
    "feed_forward.contract": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}
# What their configuration classes take where config.json is silent.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "marian": {"pad_token_id": 58100, "decoder_start_token_id": 58100, "eos_token_id": 0},
    "bart": {"pad_token_id": 1, "decoder_start_token_id": 2, "eos_token_id": 2},
}
_COMMON_DEFAULTS = {
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "activation_function": "gelu",
    "scale_embedding": False,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
}


def read_huggingface_directory(path: Path) -> Transformer:
    """Read `config.json` and `model.safetensors` as `save_pretrained` writes them."""
    if not path.is_dir():
        raise ModelError(f"{path} is {'a file' if path.exists() else 'missing'}; a model is a directory")
    config = read_json(path / CONFIG_FILE)
    if not (path / WEIGHTS_FILE).exists() and (path / "pytorch_model.bin").exists():
        raise ModelError(
            f"{path} holds pytorch_model.bin, a pickle, which can run code and is never loaded; "
            "save it again with safe serialization to get model.safetensors"
        )
    return from_huggingface(config, read_weights(path / WEIGHTS_FILE), origin=str(path))


def from_huggingface(
    config: Mapping[str, Any], state: Mapping[str, Tensor], *, origin: str = "Hugging Face model"
) -> Transformer:
    """Build a model from the configuration (`config.to_dict()`) and the state dict of a Marian, BART or T5 model.

    >>> import transformers
    >>> from regard.model.convert import from_huggingface
    >>> theirs = transformers.BartForConditionalGeneration(transformers.BartConfig(
    ...     vocab_size=50, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=32, decoder_ffn_dim=32,
    ...     encoder_attention_heads=2, decoder_attention_heads=2))
    >>> ours = from_huggingface(theirs.config.to_dict(), theirs.state_dict())
    >>> ours.config.positions, ours.config.position_offset
    ('learned', 2)
    """
    kind = config.get("model_type")
    if kind in T5_KINDS:
        return from_t5(config, state, origin=origin)
    if not isinstance(kind, str) or kind not in _DEFAULTS:
        raise ModelError(f"{origin}: model_type is {kind!r}; Marian, BART, T5 and mT5 encoder-decoders can be read")
    theirs = {**_COMMON_DEFAULTS, **_DEFAULTS[kind], **config}
    # A model without its head, as MarianModel, names everything without the leading "model.".
    weights = ForeignWeights({name.removeprefix("model."): tensor for name, tensor in state.items()}, origin)
    for stack in ("encoder", "decoder"):
        if weights.depth(stack) == 0:
            raise ModelError(f"{origin}: the weights have no {stack}.layers.0; an encoder-decoder has both stacks")
    tensors = _take_tensors(weights)
    tables = _take_position_tables(weights)
    weights.finish()

    if kind == "bart" and len(tables) < 2:
        raise ModelError(f"{origin}: encoder.embed_positions.weight is missing from the weights")
    computed = kind == "marian" and all(_is_sinusoidal(table) for table in tables.values())
    if computed:
        positions: dict[str, Any] = {"positions": "sinusoidal", "position_layout": "halves"}
    else:
        offset = 2 if kind == "bart" else 0
        rows = next(iter(tables.values())).size(0)
        positions = {"positions": "learned", "position_offset": offset, "max_positions": rows - offset}
        tensors |= {f"{side}_embedding.positions.weight": table for side, table in tables.items()}
    model = assemble(_translated(theirs, tensors, positions, origin), tensors, origin)
    if computed:
        _use_tables(model, tables)
    return model


def _translated(
    theirs: Mapping[str, Any], tensors: Mapping[str, Tensor], positions: Mapping[str, Any], origin: str
) -> TransformerConfig:
    """Return the equivalent `TransformerConfig`; sizes come from the tensors."""
    source, target = tensors["source_embedding.tokens.weight"], tensors["target_embedding.tokens.weight"]
    expand = [tensors[f"{stack}.layers.0.feed_forward.expand.weight"] for stack in ("encoder", "decoder")]
    heads = [theirs["encoder_attention_heads"], theirs["decoder_attention_heads"]]
    widths = [matrix.size(0) for matrix in expand]
    for name, (first, second) in (("attention heads", heads), ("feed-forward widths", widths)):
        if first != second:
            raise ModelError(
                f"{origin}: encoder and decoder have different {name}, {first} and {second}; here one is for both"
            )
    if str(theirs["activation_function"]) not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise ModelError(f"{origin}: activation_function is {theirs['activation_function']!r}; it is one of {known}")
    try:
        return TransformerConfig(
            vocab_size=target.size(0),
            source_vocab_size=source.size(0),
            pad_id=theirs["pad_token_id"],
            bos_id=theirs["decoder_start_token_id"],
            eos_id=theirs["eos_token_id"],
            d_model=target.size(1),
            encoder_layers=layer_count(tensors, "encoder"),
            decoder_layers=layer_count(tensors, "decoder"),
            num_heads=heads[0],
            d_ff=widths[0],
            activation=_ACTIVATIONS[theirs["activation_function"]],
            embedding_norm="source_embedding.norm.weight" in tensors,
            shared_embeddings=sharing(source, target, tensors["output.weight"]),
            embedding_scale=theirs["scale_embedding"],
            output_bias="output.bias" in tensors,
            dropout=theirs["dropout"],
            attention_dropout=theirs["attention_dropout"],
            activation_dropout=theirs["activation_dropout"],
            **positions,
        )
    except ConfigError as error:
        raise ModelError(f"{origin}: {error}") from None


def _take_tensors(weights: ForeignWeights) -> dict[str, Tensor]:
    """Take everything but the position tables, under our names."""
    tensors: dict[str, Tensor] = {}
    for stack, side in (("encoder", "source"), ("decoder", "target")):
        tensors[f"{side}_embedding.tokens.weight"] = weights.take(f"{stack}.embed_tokens.weight", "shared.weight")
        for kind in ("weight", "bias"):
            if f"{stack}.layernorm_embedding.{kind}" in weights:
                tensors[f"{side}_embedding.norm.{kind}"] = weights.take(f"{stack}.layernorm_embedding.{kind}")
            for number in range(weights.depth(stack)):
                layer = f"{stack}.layers.{number}"
                for ours, theirs in _layer_names(stack).items():
                    tensors[f"{layer}.{ours}.{kind}"] = weights.take(f"{layer}.{theirs}.{kind}")
    tensors["output.weight"] = weights.take("lm_head.weight", "decoder.embed_tokens.weight", "shared.weight")
    if "final_logits_bias" in weights:
        tensors["output.bias"] = weights.take("final_logits_bias").flatten()
    return tensors


def _layer_names(stack: str) -> dict[str, str]:
    names = {
        f"{attention}.{projection}": f"{_ATTENTIONS[attention]}.{_PROJECTIONS[projection]}"
        for attention in _ATTENTIONS
        for projection in _PROJECTIONS
    } | _OTHERS
    return {ours: theirs for ours, theirs in names.items() if stack == "decoder" or not ours.startswith("cross")}


def _take_position_tables(weights: ForeignWeights) -> dict[str, Tensor]:
    names = {"source": "encoder.embed_positions.weight", "target": "decoder.embed_positions.weight"}
    return {side: weights.take(name) for side, name in names.items() if name in weights}


def _is_sinusoidal(table: Tensor) -> bool:
    return is_close(table, sinusoidal_positions(*table.shape, layout="halves"))


def _use_tables(model: Transformer, tables: Mapping[str, Tensor]) -> None:
    """Use their own rounding of the sinusoids in place of ours: until the model is saved, outputs agree exactly."""
    for side, table in tables.items():
        embedding = model.get_submodule(f"{side}_embedding")
        assert isinstance(embedding, Embedding)
        assert isinstance(embedding.positions, SinusoidalPositions)
        embedding.positions.table = table.clone()
