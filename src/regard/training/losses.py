"""What training makes small. A loss is a function of the model and a batch that gives a sum over target tokens."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.model import Transformer
from regard.ops import drawn_agreement, drawn_cross_entropy, linear_cross_entropy
from regard.ops.drawn_loss import judged
from regard.ops.rng import keys_of_positions
from regard.training.examples import Batch
from regard.training.recipe import Training

Loss = Callable[[Transformer, Batch], Tensor]
"""The loss of a batch, summed over its target tokens; the loop divides by the tokens of the whole step."""

LossAt = Callable[[int], Loss]
"""The loss of each step, counted from 1."""


def cross_entropy(smoothing: float = 0.1, pad_id: int = 0, *, drawn: bool = False) -> Loss:
    """Make the recipe's loss: cross-entropy against smoothed labels.

    Where its gradient is `drawn`, what is small in it is right on average only: see `ops/drawn_loss.py`.
    """
    of_states = drawn_cross_entropy if drawn else linear_cross_entropy

    def loss(model: Transformer, batch: Batch) -> Tensor:
        real_BT = batch.labels_BT != pad_id
        states_RD = model.real_states(batch.source_BS, batch.target_BT, real_BT)
        labels_R, output = batch.labels_BT[real_BT], model.output
        with keys_of_positions(*real_BT.nonzero(as_tuple=True)):
            return of_states(states_RD, output.weight, labels_R, bias_W=output.bias, smoothing=smoothing)

    return loss


def r_drop(alpha: float, smoothing: float = 0.1, pad_id: int = 0, *, drawn: bool = False) -> Loss:
    """Make R-Drop's loss (Liang et al. 2021): two passes, other units dropped in each, that are to agree.

        ½ (CE₁ + CE₂) + α/4 · (KL(P₁‖P₂) + KL(P₂‖P₁))

    The mean of the two cross-entropies, where the paper has their sum: so a rate that suits one pass suits two. Its
    gradient may be `drawn`, too.
    """

    def loss(model: Transformer, batch: Batch) -> Tensor:
        real_BT = batch.labels_BT != pad_id
        first_RD, second_RD = (model.real_states(batch.source_BS, batch.target_BT, real_BT) for _ in range(2))
        labels_R, weight_WD, bias_W = batch.labels_BT[real_BT], model.output.weight, model.output.bias
        if drawn:
            with keys_of_positions(*real_BT.nonzero(as_tuple=True)):
                return drawn_agreement(
                    first_RD, second_RD, weight_WD, labels_R, bias_W=bias_W, smoothing=smoothing, agreement=alpha
                )
        first_RW, second_RW = model.logits(first_RD), model.logits(second_RD)
        summed: Tensor = _TwoPasses.apply(first_RW, second_RW, labels_R, smoothing, alpha)  # type: ignore[no-untyped-call]
        return summed

    return loss


def losses_of(training: Training) -> LossAt:
    """Give the losses that a run's settings ask for."""
    drawn = training.softmax_gradient == "drawn"
    one_pass = cross_entropy(training.label_smoothing, drawn=drawn)
    if training.r_drop == 0.0:
        return lambda step: one_pass
    two_passes = r_drop(training.r_drop, training.label_smoothing, drawn=drawn)
    return lambda step: two_passes if step >= training.r_drop_from else one_pass


class _TwoPasses(torch.autograd.Function):
    """R-Drop's loss with its gradient, some rows at a time, so that what lies between stays in the cache."""

    _ROWS = 128

    @staticmethod
    def forward(ctx: Any, first_RW: Tensor, second_RW: Tensor, labels_R: Tensor, smoothing: float, alpha: float) -> Any:
        gradients = torch.empty_like(first_RW), torch.empty_like(second_RW)
        total = first_RW.new_zeros((), dtype=torch.promote_types(first_RW.dtype, torch.float32))
        for start in range(0, labels_R.size(0), _TwoPasses._ROWS):
            rows = slice(start, start + _TwoPasses._ROWS)
            logits_PRW = torch.stack([first_RW[rows], second_RW[rows]])
            loss, changes_PRW = judged(logits_PRW, labels_R[rows], smoothing, alpha)
            total += loss - smoothing * logits_PRW.mean(-1).sum() / 2
            for gradient, change_RW in zip(gradients, changes_PRW, strict=True):
                gradient[rows] = change_RW
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        first_RW, second_RW = ctx.saved_tensors
        return first_RW * outer[0].to(first_RW.dtype), second_RW * outer[0].to(second_RW.dtype), None, None, None
