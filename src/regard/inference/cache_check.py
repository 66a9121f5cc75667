"""Whether a changed model decodes step by step as it does in one pass."""

import torch
from torch import Tensor

from regard.layers import DecoderLayer
from regard.model import Transformer

_TOKENS = 12


@torch.no_grad()
def decodes_alike(model: Transformer) -> bool:
    """Whether a few tokens have the same logits by cached steps as by the forward pass.

    They differ where a layer depends on other positions and keeps them in no cache, such as a convolution. A model
    whose outputs are random is not compared.

    >>> import regard
    >>> model = regard.Transformer(regard.TransformerConfig.preset("tiny", vocab_size=99)).eval()
    >>> decodes_alike(model)
    True
    """
    if model.device.type == "meta":
        return True
    if not _makes_caches(model):
        return False
    config = model.config
    source = None if model.encoder is None else _tokens(model, config.source_size)
    target = _tokens(model, config.vocab_size)
    whole, again = model(source, target), model(source, target)
    if not torch.equal(whole, again):
        return True
    cache = model.start_cache(None if source is None else model.encode(source))
    steps = [model.logits(model.decode(target[:, t : t + 1], cache=cache)) for t in range(target.size(1))]
    difference = (torch.cat(steps, 1) - whole).abs().max()
    tolerance = 1e-3 if torch.finfo(whole.dtype).eps < 1e-5 else 0.1
    return bool(difference <= tolerance * whole.abs().max().clamp(min=1.0))


def _makes_caches(model: Transformer) -> bool:
    """Whether attention in the decoder has caches to start; a module that is no `MultiHeadAttention` may have none."""
    for layer in () if model.decoder is None else model.decoder.layers:
        if isinstance(layer, DecoderLayer) and type(layer).start_cache is DecoderLayer.start_cache:
            cross = layer.cross_attention
            if not hasattr(layer.self_attention, "start_cache"):
                return False
            if cross is not None and not hasattr(cross, "start_source_cache"):
                return False
    return True


def _tokens(model: Transformer, size: int) -> Tensor:
    """Return a row of tokens that are not padding."""
    numbers = [number for number in range(size) if number != model.config.pad_id]
    length = _TOKENS if model.config.longest is None else min(_TOKENS, model.config.longest)
    return torch.tensor([[numbers[7 * place % len(numbers)] for place in range(length)]], device=model.device)
