"""The loss of the training recipe."""

from typing import Literal

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

    >>> import torch
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
    if not 0.0 <= smoothing < 1.0:
        raise InputError(f"label smoothing is {smoothing}; it must be at least 0 and less than 1")
    W = logits.size(-1)
    flat = targets.flatten().long()
    ignored = -100 if pad_id is None else pad_id  # torch's own mark for a target to skip
    try:
        losses = F.cross_entropy(
            logits.reshape(-1, W), flat, ignore_index=ignored, label_smoothing=smoothing, reduction="none"
        )
    except IndexError:
        raise InputError(f"targets go up to {int(targets.max())}, beyond a vocabulary of {W}") from None
    if reduction == "none":
        return losses.view(targets.shape)
    if reduction == "sum":
        return losses.sum()
    return losses.sum() / (flat != ignored).sum().clamp(min=1)
