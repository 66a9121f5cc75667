"""Whether a changed model decodes step by step as it does in one pass."""

import torch
from torch import Tensor

from regard.errors import ModelError, RegardError, StoppedError
from regard.model import Transformer

_TOKENS = 12


@torch.no_grad()
def decodes_alike(model: Transformer) -> bool:
    """Whether a few tokens have the same logits by cached steps as by the forward pass.

    They differ where a layer depends on other positions and keeps them in no cache, such as a convolution. A model
    that cannot be run with a cache has no such logits. A model whose outputs are random is not compared.

    >>> import regard
    >>> model = regard.Transformer(regard.TransformerConfig.preset("tiny", vocab_size=99)).eval()
    >>> decodes_alike(model)
    True
    """
    if model.device.type == "meta":
        return True
    config = model.config
    source = None if model.encoder is None else _tokens(model, config.source_size)
    target = _tokens(model, config.vocab_size)
    whole, again = (_forward_pass(model, source, target) for _ in range(2))
    try:
        steps = _cached_steps(model, source, target)
    except (MemoryError, StoppedError):
        raise
    except Exception:  # a replaced layer may have no cache, or take none, and may say so by any error
        return False
    return not torch.equal(whole, again) or _same_logits(steps, whole)


def _forward_pass(model: Transformer, source: Tensor | None, target: Tensor) -> Tensor:
    """Return the logits of all positions; raise a `ModelError` where the model cannot be run at all."""
    try:
        logits: Tensor = model(source, target)
    except (RegardError, MemoryError):
        raise
    except Exception as error:
        raise ModelError(f"the model's forward pass fails: {type(error).__name__}: {error}") from error
    return logits


def _cached_steps(model: Transformer, source: Tensor | None, target: Tensor) -> Tensor:
    """Return the logits of all positions, computed one after the other."""
    cache = model.start_cache(None if source is None else model.encode(source))
    steps = [model.logits(model.decode(target[:, t : t + 1], cache=cache)) for t in range(target.size(1))]
    return torch.cat(steps, 1)


def _same_logits(one: Tensor, other: Tensor) -> bool:
    """Whether logits are equal up to rounding, of the largest finite one; banned tokens have -∞ in both."""
    finite = other[other.isfinite()]
    scale = float(finite.abs().max().clamp(min=1.0)) if finite.numel() > 0 else 1.0
    tolerance = 1e-3 if torch.finfo(other.dtype).eps < 1e-5 else 0.1
    return one.shape == other.shape and torch.allclose(one, other, rtol=0.0, atol=tolerance * scale)


def _tokens(model: Transformer, size: int) -> Tensor:
    """Return a row of tokens that are not padding."""
    numbers = [number for number in range(size) if number != model.config.pad_id]
    length = _TOKENS if model.config.longest is None else min(_TOKENS, model.config.longest)
    return torch.tensor([[numbers[7 * place % len(numbers)] for place in range(length)]], device=model.device)
