"""What training makes small. A loss is a function of the model and a batch that gives a sum over target tokens."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from regard.ops import label_smoothed_cross_entropy
from regard.training.examples import Batch

Model = Callable[[Tensor, Tensor], Tensor]
"""Source and target tokens to logits."""
Loss = Callable[[Model, Batch], Tensor]
"""The loss of a batch, summed over its target tokens; the loop divides by the tokens of the whole step."""


def cross_entropy(smoothing: float = 0.1, pad_id: int = 0) -> Loss:
    """Make the recipe's loss: cross-entropy against smoothed labels."""

    def loss(model: Model, batch: Batch) -> Tensor:
        logits_BTW = model(batch.source_BS, batch.target_BT)
        return _summed(logits_BTW, batch, smoothing, pad_id)

    return loss


def r_drop(alpha: float, smoothing: float = 0.1, pad_id: int = 0) -> Loss:
    """Make R-Drop's loss (Liang et al. 2021): two passes, other units dropped in each, that are to agree.

        ½ (CE₁ + CE₂) + α/4 · (KL(P₁‖P₂) + KL(P₂‖P₁))

    The mean of the two cross-entropies, where the paper has their sum: so a rate that suits one pass suits two.
    """

    def loss(model: Model, batch: Batch) -> Tensor:
        first_BTW = model(batch.source_BS, batch.target_BT)
        second_BTW = model(batch.source_BS, batch.target_BT)
        likely = _summed(first_BTW, batch, smoothing, pad_id) + _summed(second_BTW, batch, smoothing, pad_id)
        real_BT = batch.labels_BT != pad_id
        one, two = first_BTW[real_BT].log_softmax(-1), second_BTW[real_BT].log_softmax(-1)
        apart = F.kl_div(one, two, reduction="sum", log_target=True) + F.kl_div(
            two, one, reduction="sum", log_target=True
        )
        return likely / 2 + alpha / 4 * apart

    return loss


def _summed(logits_BTW: Tensor, batch: Batch, smoothing: float, pad_id: int) -> Tensor:
    return label_smoothed_cross_entropy(
        logits_BTW, batch.labels_BT, smoothing=smoothing, pad_id=pad_id, reduction="sum"
    )
