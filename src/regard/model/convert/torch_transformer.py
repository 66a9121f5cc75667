"""From `torch.nn.Transformer`."""

from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor

from regard.errors import InputError, ModelError
from regard.model.config import TransformerConfig
from regard.model.convert.weights import ForeignWeights, assemble, sharing
from regard.model.transformer import Transformer

_ORIGIN = "torch.nn.Transformer"
_NORMS = {
    "encoder": {"self_attention": "norm1", "feed_forward": "norm2"},
    "decoder": {"self_attention": "norm1", "cross_attention": "norm2", "feed_forward": "norm3"},
}
_ATTENTIONS = {"self_attention": "self_attn", "cross_attention": "multihead_attn"}


def from_torch_transformer(
    state: Mapping[str, Tensor],
    *,
    num_heads: int,
    source_embedding: Tensor,
    target_embedding: Tensor | None = None,
    output_weight: Tensor | None = None,
    norm_first: bool = False,
    activation: Literal["relu", "gelu"] = "relu",
    **fields: Any,
) -> Transformer:
    """Build a model from the state dict of a `torch.nn.Transformer` and the matrices its user kept beside it.

    >>> import torch, regard
    >>> from regard.model.convert import from_torch_transformer
    >>> theirs = torch.nn.Transformer(16, nhead=2, num_encoder_layers=1, num_decoder_layers=1)
    >>> E = torch.randn(50, 16)
    >>> ours = from_torch_transformer(theirs.state_dict(), num_heads=2, source_embedding=E)
    >>> ours(torch.tensor([[3, 4]]), torch.tensor([[5]])).shape
    torch.Size([1, 1, 50])

    The target's matrix is the source's unless given, and the output's the target's. What a state dict does not tell,
    heads, norm placement and activation, is told here; `fields` are any further fields of `TransformerConfig`.
    """
    weights = ForeignWeights(state, _ORIGIN)
    target_embedding = source_embedding if target_embedding is None else target_embedding
    output_weight = target_embedding if output_weight is None else output_weight
    for name, matrix in (("source", source_embedding), ("target", target_embedding), ("output", output_weight)):
        if matrix.dim() != 2:
            raise InputError(f"the {name}'s matrix has shape {tuple(matrix.shape)}; it takes (vocabulary, d_model)")
    tensors: dict[str, Tensor] = {
        "source_embedding.tokens.weight": source_embedding,
        "target_embedding.tokens.weight": target_embedding,
        "output.weight": output_weight,
    }
    for stack in ("encoder", "decoder"):
        _take_stack(tensors, weights, stack)
    weights.finish()

    first = tensors["encoder.layers.0.feed_forward.expand.weight"]
    config = TransformerConfig(
        **{
            "vocab_size": target_embedding.size(0),
            "source_vocab_size": source_embedding.size(0),
            "d_model": first.size(1),
            "d_ff": first.size(0),
            "num_heads": num_heads,
            "encoder_layers": weights.depth("encoder"),
            "decoder_layers": weights.depth("decoder"),
            "norm_placement": "pre" if norm_first else "post",
            "final_norm": "encoder.final_norm.weight" in tensors,
            "activation": activation,
            "bias": "encoder.layers.0.feed_forward.expand.bias" in tensors,
            "shared_embeddings": sharing(source_embedding, target_embedding, output_weight),
            **fields,
        }
    )
    return assemble(config, tensors, _ORIGIN)


def _take_stack(tensors: dict[str, Tensor], weights: ForeignWeights, stack: str) -> None:
    if weights.depth(stack) == 0:
        raise ModelError(f"{_ORIGIN}: the weights have no {stack}.layers.0; a state dict with both stacks is needed")
    for number in range(weights.depth(stack)):
        _take_layer(tensors, weights, stack, number)
    if f"{stack}.norm.weight" in weights:
        _take_norm(tensors, weights, f"{stack}.final_norm", f"{stack}.norm")


def _take_layer(tensors: dict[str, Tensor], weights: ForeignWeights, stack: str, number: int) -> None:
    layer = f"{stack}.layers.{number}"
    for ours, norm in _NORMS[stack].items():
        _take_norm(tensors, weights, f"{layer}.{ours}_residual.norm", f"{layer}.{norm}")
        if ours in _ATTENTIONS:
            _take_attention(tensors, weights, f"{layer}.{ours}", f"{layer}.{_ATTENTIONS[ours]}")
    _take_linear(tensors, weights, f"{layer}.feed_forward.expand", f"{layer}.linear1")
    _take_linear(tensors, weights, f"{layer}.feed_forward.contract", f"{layer}.linear2")


def _take_attention(tensors: dict[str, Tensor], weights: ForeignWeights, ours: str, theirs: str) -> None:
    for kind in ("weight", "bias"):
        if f"{theirs}.in_proj_{kind}" in weights:
            packed = weights.take(f"{theirs}.in_proj_{kind}")
            if packed.size(0) % 3:
                raise ModelError(
                    f"{_ORIGIN}: {theirs}.in_proj_{kind} has shape {tuple(packed.shape)}; "
                    "its rows are those of queries, keys and values, as many of each"
                )
            for name, part in zip(("query", "key", "value"), packed.chunk(3), strict=True):
                tensors[f"{ours}.{name}.{kind}"] = part
    _take_linear(tensors, weights, f"{ours}.output", f"{theirs}.out_proj")


def _take_linear(tensors: dict[str, Tensor], weights: ForeignWeights, ours: str, theirs: str) -> None:
    tensors[f"{ours}.weight"] = weights.take(f"{theirs}.weight")
    if f"{theirs}.bias" in weights:
        tensors[f"{ours}.bias"] = weights.take(f"{theirs}.bias")


def _take_norm(tensors: dict[str, Tensor], weights: ForeignWeights, ours: str, theirs: str) -> None:
    gamma = weights.take(f"{theirs}.weight")
    # Made with bias=False, torch's norms have no shift either; ours have one, and zero is the same.
    beta = weights.take(f"{theirs}.bias") if f"{theirs}.bias" in weights else gamma.new_zeros(gamma.shape)
    tensors[f"{ours}.weight"], tensors[f"{ours}.bias"] = gamma, beta
