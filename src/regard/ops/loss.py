"""The loss of the training recipe."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError


def label_smoothed_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    *,
    smoothing: float = 0.1,
    pad_id: int | None = None,
    reduction: Literal["mean", "sum", "none"] = "mean",
) -> Tensor:
    """Cross-entropy with the distribution (1 - ε) · one-hot + ε/W · uniform, over the tokens that are not padding.

    >>> logits, targets = torch.zeros(1, 3, 8), torch.tensor([[5, 2, 0]])
    >>> label_smoothed_cross_entropy(logits, targets, pad_id=0)  # log 8, whatever the smoothing
    tensor(2.0794)

    Logits are (…, W) and targets (…). The mean is taken over real tokens; where there are none it is 0.
    """
    if logits.shape[:-1] != targets.shape:
        raise InputError(
            f"logits of shape {tuple(logits.shape)} need targets of shape {tuple(logits.shape[:-1])}, "
            f"got {tuple(targets.shape)}"
        )
    if targets.is_floating_point() or targets.dtype == torch.bool:
        raise InputError(f"targets are token numbers and must be integers, got {targets.dtype}")
    if not 0.0 <= smoothing < 1.0:
        raise InputError(f"label smoothing is {smoothing}; it must be at least 0 and less than 1")
    if reduction not in ("mean", "sum", "none"):
        raise InputError(f"reduction is {reduction!r}; it is one of mean, sum, none")
    W = logits.size(-1)
    flat = targets.flatten().long()
    real = torch.ones_like(flat, dtype=torch.bool) if pad_id is None else flat != pad_id
    skipped = -100  # torch's own mark; never a token, so padding of any number can become it
    wrong = real & ((flat < 0) | (flat >= W))
    if logits.device.type == "cpu" and wrong.any():
        raise InputError(f"target {int(flat[wrong][0])} is outside the vocabulary of {W}")
    losses = F.cross_entropy(
        logits.reshape(-1, W),
        flat.masked_fill(~real, skipped),
        ignore_index=skipped,
        label_smoothing=smoothing,
        reduction="none",
    )
    if reduction == "none":
        return losses.view(targets.shape)
    total = losses.sum(dtype=torch.promote_types(losses.dtype, torch.float32))
    return total if reduction == "sum" else total / real.sum().clamp(min=1)
