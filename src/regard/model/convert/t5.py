"""From Hugging Face's T5, flan-T5 and mT5."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.errors import ConfigError, ModelError
from regard.model.config import TransformerConfig
from regard.model.convert.weights import ForeignWeights, assemble, layer_count, sharing
from regard.model.transformer import Transformer
from regard.model.variations import AttentionConfig, T5Config

# What their configuration classes take where config.json is silent.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "t5": {"num_heads": 8, "feed_forward_proj": "relu"},
    "mt5": {"num_heads": 6, "feed_forward_proj": "gated-gelu"},
}
_COMMON_DEFAULTS = {
    "d_kv": 64,
    "relative_attention_max_distance": 128,
    "dropout_rate": 0.1,
    "layer_norm_epsilon": 1e-6,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
    "eos_token_id": 1,
}
# Their "gated-gelu" is the approximation by tanh, and their "gelu" is not.
_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "silu",
    "gated-gelu": "geglu_tanh",
    "gated-silu": "swiglu",
}
_PROJECTIONS = {"query": "q", "key": "k", "value": "v", "output": "o"}
_SIDES = {"encoder": "source", "decoder": "target"}
T5_KINDS = tuple(_DEFAULTS)


def from_t5(config: Mapping[str, Any], state: Mapping[str, Tensor], *, origin: str) -> Transformer:
    """Build a model from the configuration and the state dict of a T5, flan-T5 or mT5 encoder-decoder.

    Where they multiply the decoder's output by 1/√d_model before the logits, the gain of the decoder's final norm is
    multiplied by it here: nothing but the logits reads that norm.
    """
    theirs = {**_COMMON_DEFAULTS, **_DEFAULTS[config["model_type"]], **config}
    # Some checkpoints hold a table for cross-attention that their own code does not read.
    unread = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    weights = ForeignWeights({name: tensor for name, tensor in state.items() if name != unread}, origin)
    for stack in _SIDES:
        if weights.depth(stack, "block") == 0:
            raise ModelError(f"{origin}: the weights have no {stack}.block.0; an encoder-decoder has both stacks")
    tensors = _take_tensors(weights)
    weights.finish()
    if _scales_output(theirs):
        name = "decoder.final_norm.weight"
        tensors[name] = tensors[name] * tensors[name].size(0) ** -0.5
    return assemble(_translated(theirs, tensors, origin), tensors, origin)


def _scales_output(theirs: Mapping[str, Any]) -> bool:
    """Whether logits are those of the decoder's output times 1/√d_model: of T5 with tied embeddings."""
    tied = theirs.get("tie_word_embeddings", True) is not False
    return theirs["model_type"] == "t5" and bool(theirs.get("scale_decoder_outputs", tied))


def _take_tensors(weights: ForeignWeights) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for stack, side in _SIDES.items():
        tensors[f"{side}_embedding.tokens.weight"] = weights.take(f"{stack}.embed_tokens.weight", "shared.weight")
        tensors[f"{stack}.final_norm.weight"] = weights.take(f"{stack}.final_layer_norm.weight")
        table = weights.take(f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight")
        for number in range(weights.depth(stack, "block")):
            ours, theirs = f"{stack}.layers.{number}", f"{stack}.block.{number}.layer"
            tensors[f"{ours}.self_attention.positions.weight"] = table  # one for all layers
            sublayers = {"self_attention": "SelfAttention"}
            if stack == "decoder":
                sublayers["cross_attention"] = "EncDecAttention"
            for place, (attention, name) in enumerate(sublayers.items()):
                for projection, letter in _PROJECTIONS.items():
                    tensors[f"{ours}.{attention}.{projection}.weight"] = weights.take(
                        f"{theirs}.{place}.{name}.{letter}.weight"
                    )
                norm = weights.take(f"{theirs}.{place}.layer_norm.weight")
                tensors[f"{ours}.{attention}_residual.norm.weight"] = norm
            last = f"{theirs}.{len(sublayers)}"
            tensors[f"{ours}.feed_forward_residual.norm.weight"] = weights.take(f"{last}.layer_norm.weight")
            _take_feed_forward(tensors, weights, f"{ours}.feed_forward", f"{last}.DenseReluDense")
    tensors["output.weight"] = weights.take("lm_head.weight", "decoder.embed_tokens.weight", "shared.weight")
    return tensors


def _take_feed_forward(tensors: dict[str, Tensor], weights: ForeignWeights, ours: str, theirs: str) -> None:
    if f"{theirs}.wi_0.weight" in weights:
        tensors[f"{ours}.gate.weight"] = weights.take(f"{theirs}.wi_0.weight")
        tensors[f"{ours}.expand.weight"] = weights.take(f"{theirs}.wi_1.weight")
    else:
        tensors[f"{ours}.expand.weight"] = weights.take(f"{theirs}.wi.weight")
    tensors[f"{ours}.contract.weight"] = weights.take(f"{theirs}.wo.weight")


def _translated(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor], origin: str) -> TransformerConfig:
    """Write their configuration in our words; sizes are read off the tensors."""
    source, target = tensors["source_embedding.tokens.weight"], tensors["target_embedding.tokens.weight"]
    if str(theirs["feed_forward_proj"]) not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise ModelError(f"{origin}: feed_forward_proj is {theirs['feed_forward_proj']!r}; it is one of {known}")
    rate = theirs["dropout_rate"]
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
            num_heads=theirs["num_heads"],
            d_k=theirs["d_kv"],
            d_v=theirs["d_kv"],
            d_ff=tensors["encoder.layers.0.feed_forward.expand.weight"].size(0),
            activation=_ACTIVATIONS[theirs["feed_forward_proj"]],
            bias=False,
            norm="rms",
            norm_placement="pre",
            norm_eps=theirs["layer_norm_epsilon"],
            shared_embeddings=sharing(source, target, tensors["output.weight"]),
            embedding_scale=False,
            positions=T5Config(
                buckets=tensors["encoder.layers.0.self_attention.positions.weight"].size(0),
                max_distance=theirs["relative_attention_max_distance"],
            ),
            attention=AttentionConfig(scale=1.0),
            dropout=rate,
            attention_dropout=rate,
            activation_dropout=rate,
        )
    except ConfigError as error:
        raise ModelError(f"{origin}: {error}") from None
