"""A model as CTranslate2 has it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.errors import InputError, ModelError
from regard.export.position_table import position_table
from regard.layers.attention import MultiHeadAttention
from regard.layers.embeddings import Embedding
from regard.layers.feed_forward import FeedForward
from regard.model import TransformerConfig
from regard.ops.feed_forward import is_gated
from regard.tasks.translation import Translator

_BATCH = 32
_STEPS = 64


def write_ctranslate2(pipeline: Translator, path: Path, quantized: bool) -> None:
    """Write a model directory of CTranslate2's."""
    config, model = pipeline.model.config, pipeline.model
    _check(config)
    specs = _library().specs
    spec = _empty(config, specs)
    stacks: list[tuple[Any, Any, Any]] = [
        (spec.encoder, model.encoder, model.source_embedding),
        (spec.decoder, model.decoder, model.target_embedding),
    ]
    for stack, given, embedding in stacks:
        _fill_embedding(stack, embedding, config)
        if config.has_final_norm:
            _fill_norm(stack.layer_norm, given.final_norm)
        for layer_spec, layer in zip(stack.layer, given.layers, strict=True):
            _fill_attention(layer_spec.self_attention, layer.self_attention, layer.self_attention_residual, True)
            if stack is spec.decoder:
                _fill_attention(layer_spec.attention, layer.cross_attention, layer.cross_attention_residual, False)
            _fill_feed_forward(layer_spec.ffn, layer.feed_forward, layer.feed_forward_residual)
    _fill(spec.decoder.projection, model.output.matrix(), model.output.bias)
    spec.register_source_vocabulary([pipeline.source.token(number) for number in range(config.source_size)])
    spec.register_target_vocabulary([pipeline.target.token(number) for number in range(config.vocab_size)])
    spec.config.layer_norm_epsilon = config.norm_eps
    for name, number in (("bos_token", config.bos_id), ("eos_token", config.eos_id)):
        setattr(spec.config, name, pipeline.target.token(number or 0))
    spec.config.decoder_start_token = spec.config.bos_token
    spec.config.add_source_eos = spec.config.add_source_bos = False
    spec.validate()
    spec.optimize(quantization=None)
    if quantized:
        _round_weights(spec, specs.model_spec)
    spec.save(str(path))


def _round_weights(spec: Any, library: Any) -> None:
    """Round weights to int8, not as CTranslate2's own converters do: to 64 steps on either side of zero, not 127.

    Processors without VNNI add two products in 16 bits, where 2 · 255 · 127 does not fit; on those, 127 steps cost
    more of a model's quality than they bring it elsewhere.
    """

    def round_one(layer: Any, name: str, value: Any) -> None:
        key = name.rsplit("/", 1)[-1]
        if not isinstance(value, library.Variable) or not hasattr(layer, f"{key}_scale"):
            return
        weight_XD = value.to("float32").numpy()
        scale_X = np.float32(_STEPS) / np.maximum(np.abs(weight_XD).max(axis=1), 1e-12, dtype=np.float32)
        setattr(layer, key, library.NumpyVariable(np.rint(weight_XD * scale_X[:, None]).astype(np.int8)))
        setattr(layer, f"{key}_scale", library.NumpyVariable(scale_X))

    library.visit_spec(spec, round_one)


def _check(config: TransformerConfig) -> None:
    """Refuse what CTranslate2 cannot represent, with the reason."""
    reason = None
    if config.kind != "encoder-decoder":
        reason = f"is {config.kind}; an encoder and a decoder are expected"
    elif (config.d_k or config.d_model // config.num_heads) != (config.d_v or config.d_model // config.num_heads):
        reason = f"has d_k {config.d_k} and d_v {config.d_v}; CTranslate2's heads have one width"
    elif config.norm_placement == "post" and config.has_final_norm:
        reason = "has norms after each sublayer and another at the end; CTranslate2 knows the one or the other"
    elif config.norm == "rms" and config.embedding_norm:
        reason = "has an RMS norm after its embeddings; CTranslate2 has none there"
    if reason is not None:
        raise InputError(f"the model {reason}, so it cannot be exported to ctranslate2")


def _empty(config: TransformerConfig, specs: Any) -> Any:
    activations = specs.Activation
    activation = {
        "relu": activations.RELU,
        "gelu": activations.GELU,
        "gelu_tanh": activations.GELUTanh,
        "silu": activations.SWISH,
        "swiglu": activations.SWISH,
        "geglu": activations.GELU,
        "geglu_tanh": activations.GELUTanh,
    }[config.activation]
    common = dict(
        pre_norm=config.norm_placement == "pre",
        no_final_norm=not config.has_final_norm,
        activation=activation,
        layernorm_embedding=config.embedding_norm,
        ffn_glu=is_gated(config.activation),
        rms_norm=config.norm == "rms",
        num_heads_kv=config.num_kv_heads,
        head_dim=config.d_k,
    )
    transformer = specs.transformer_spec
    encoder = transformer.TransformerEncoderSpec(config.encoder_layers, config.num_heads, **common)
    decoder = transformer.TransformerDecoderSpec(config.decoder_layers, config.num_heads, **common)
    encoder.scale_embeddings = decoder.scale_embeddings = config.embedding_scale
    return transformer.TransformerSpec(encoder, decoder)


def _fill_embedding(stack: Any, embedding: Embedding, config: TransformerConfig) -> None:
    place = stack.embeddings[0] if isinstance(stack.embeddings, list) else stack.embeddings
    place.weight = _array(embedding.tokens.matrix())
    # Its own sinusoids are laid out otherwise, so that a table is given in any case.
    stack.position_encodings.encodings = _array(position_table(embedding, config))
    if embedding.norm is not None:
        _fill_norm(stack.layernorm_embedding, embedding.norm)


def _fill_attention(spec: Any, layer: MultiHeadAttention, residual: Any, is_self_attention: bool) -> None:
    parts = [[layer.query, layer.key, layer.value]] if is_self_attention else [[layer.query], [layer.key, layer.value]]
    for place, together in zip(spec.linear, [*parts, [layer.output]], strict=True):
        bias = torch.cat([part.bias for part in together]) if together[0].bias is not None else None
        _fill(place, torch.cat([part.weight for part in together]), bias)
    _fill_norm(spec.layer_norm, residual.norm)


def _fill_feed_forward(spec: Any, layer: FeedForward, residual: Any) -> None:
    if layer.gate is None:
        _fill(spec.linear_0, layer.expand.weight, layer.expand.bias)
    else:
        _fill(spec.linear_0, layer.gate.weight, layer.gate.bias)
        _fill(spec.linear_0_noact, layer.expand.weight, layer.expand.bias)
    _fill(spec.linear_1, layer.contract.weight, layer.contract.bias)
    _fill_norm(spec.layer_norm, residual.norm)


def _fill_norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma = _array(norm.weight)
    if isinstance(getattr(norm, "bias", None), Tensor):
        spec.beta = _array(norm.bias)


def _fill(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = _array(weight)
    if bias is not None:
        spec.bias = _array(bias)


def _array(tensor: Any) -> Any:
    return tensor.detach().float().numpy().copy()  # quantisation works in place


class CTranslate2:
    """A model that CTranslate2 runs."""

    def __init__(self, path: Path, config: TransformerConfig) -> None:
        library = _library()
        self._translator = library.Translator(str(path), device="cpu", inter_threads=1, intra_threads=1)
        vocabularies = [path / f"{name}_vocabulary.json" for name in ("source", "target")]
        if not vocabularies[0].exists():
            vocabularies = [path / "shared_vocabulary.json"] * 2
        self._source, self._target = map(_read_vocabulary, vocabularies)
        self._numbers = {token: number for number, token in enumerate(self._target)}

    def greedy(self, sources: Sequence[list[int]], limits: Sequence[int], never: Sequence[int]) -> list[list[int]]:
        """Write the likeliest token again and again, up to so many, and some of them never."""
        found = []
        for source, limit in zip(sources, limits, strict=True):
            (result,) = self._translator.translate_batch(
                [self._tokens(source)],
                beam_size=1,
                min_decoding_length=0,
                max_decoding_length=limit,
                max_input_length=0,
                suppress_sequences=[[self._target[number]] for number in never],
            )
            found.append([self._numbers[token] for token in result.hypotheses[0]])
        return found

    def log_probabilities(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Return log p of each token of given targets, and of their end."""
        found: list[list[float]] = []
        for first in range(0, len(pairs), _BATCH):
            chosen = pairs[first : first + _BATCH]
            scored = self._translator.score_batch(
                [self._tokens(source) for source, _ in chosen],
                [[self._target[number] for number in target] for _, target in chosen],
                max_input_length=0,
            )
            found += [list(result.log_probs) for result in scored]
        return found

    def _tokens(self, source: list[int]) -> list[str]:
        return [self._source[number] for number in source]


def _read_vocabulary(path: Path) -> list[str]:
    tokens: list[str] = json.loads(path.read_text(encoding="utf-8"))
    return tokens


def _library() -> Any:
    try:
        import ctranslate2
    except ImportError:
        raise ModelError("ctranslate2 is not installed: pip install ctranslate2") from None
    return ctranslate2
