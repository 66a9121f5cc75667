"""The losses of the training recipe: label smoothing (Vaswani et al. 2017, §5.4) and R-Drop."""

from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError
from regard.ops.dropout import checked_rate


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
        raise InputError(f"targets of shape {tuple(targets.shape)} do not fit logits of shape {tuple(logits.shape)}")
    if targets.is_floating_point() or targets.dtype == torch.bool:
        raise InputError(f"targets are token numbers and must be integers, got {targets.dtype}")
    checked_rate(smoothing, "label smoothing")
    if reduction not in ("mean", "sum", "none"):
        raise InputError(f"reduction is {reduction!r}; it is one of mean, sum, none")
    W = logits.size(-1)
    flat = targets.flatten().long()
    ignored = -(2**63) if pad_id is None else pad_id  # torch's own -100 may be a mistake in the targets
    try:
        losses = F.cross_entropy(
            logits.reshape(-1, W), flat, ignore_index=ignored, label_smoothing=smoothing, reduction="none"
        )
    except IndexError:
        check_labels(flat if pad_id is None else flat[flat != pad_id], W)
        raise
    if reduction == "none":
        return losses.view(targets.shape)
    total = losses.sum(dtype=torch.promote_types(losses.dtype, torch.float32))
    if reduction == "sum":
        return total
    return total / (max(flat.numel(), 1) if pad_id is None else (flat != pad_id).sum().clamp(min=1))


def check_labels(labels_R: Tensor, W: int) -> None:
    """Raise an `InputError` for labels outside the vocabulary; only on the CPU, where looking at them costs no wait."""
    if labels_R.device.type != "cpu":
        return
    wrong = (labels_R < 0) | (labels_R >= W)
    if wrong.any():
        raise InputError(f"target {int(labels_R[wrong][0])} is outside the vocabulary of {W}")


def r_drop_loss(first: Tensor, second: Tensor, targets: Tensor, *, smoothing: float = 0.1, alpha: float) -> Tensor:
    """R-Drop loss (Liang et al. 2021) of the logits of two passes with different dropout, summed over targets.

        ½ (CE₁ + CE₂) + α/4 · (KL(P₁‖P₂) + KL(P₂‖P₁))

    The mean of the two cross-entropies, where the paper has their sum: so a rate that suits one pass suits two.

    >>> logits, targets = torch.randn(5, 8), torch.randint(8, (5,))
    >>> same = r_drop_loss(logits, logits, targets, alpha=3.0)  # they agree already
    >>> torch.allclose(same, label_smoothed_cross_entropy(logits, targets, reduction="sum"))
    True
    """
    if first.shape != second.shape:
        raise InputError(f"passes of shapes {tuple(first.shape)} and {tuple(second.shape)} must be of one shape")
    if not alpha >= 0.0:
        raise InputError(f"alpha is {alpha}; it must be at least 0")
    cross_entropy = partial(label_smoothed_cross_entropy, targets=targets, smoothing=smoothing, reduction="sum")
    wide = torch.promote_types(first.dtype, torch.float32)
    first_log, second_log = first.to(wide).log_softmax(-1), second.to(wide).log_softmax(-1)
    divergence = ((first_log.exp() - second_log.exp()) * (first_log - second_log)).sum()
    return (cross_entropy(first) + cross_entropy(second)) / 2 + alpha / 4 * divergence
