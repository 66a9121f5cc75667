"""The loss of the training recipe."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError
from regard.kernels.bindings import can_compute, library, threads
from regard.ops.derivatives import refuse_second_derivatives
from regard.ops.float_product import float_product, put_product


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
    _check_smoothing(smoothing)
    if reduction not in ("mean", "sum", "none"):
        raise InputError(f"reduction is {reduction!r}; it is one of mean, sum, none")
    W = logits.size(-1)
    flat = targets.flatten().long()
    real = torch.ones_like(flat, dtype=torch.bool) if pad_id is None else flat != pad_id
    skipped = -100  # torch's own mark; never a token, so padding of any number can become it
    _check_labels(flat, W, real)
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


def _check_labels(labels_R: Tensor, W: int, real_R: Tensor | None = None) -> None:
    if labels_R.device.type != "cpu":  # a look at them would make the device wait
        return
    wrong = (labels_R < 0) | (labels_R >= W)
    if real_R is not None:
        wrong &= real_R
    if wrong.any():
        raise InputError(f"target {int(labels_R[wrong][0])} is outside the vocabulary of {W}")


def _check_smoothing(smoothing: float) -> None:
    if not 0.0 <= smoothing < 1.0:
        raise InputError(f"label smoothing is {smoothing}; it must be at least 0 and less than 1")


ROWS = 512  # of logits that are worked on at a time: few enough for the cache, enough for the matrix products


def linear_cross_entropy(
    states_RD: Tensor, weight_WD: Tensor, labels_R: Tensor, *, bias_W: Tensor | None = None, smoothing: float = 0.1
) -> Tensor:
    """Give the summed label-smoothed cross-entropy of the logits h·Wᵀ + b, without ever holding all of them.

    >>> states, weight, labels = torch.randn(5, 4), torch.randn(9, 4), torch.randint(9, (5,))
    >>> whole = label_smoothed_cross_entropy(states @ weight.T, labels, reduction="sum")
    >>> torch.allclose(linear_cross_entropy(states, weight, labels), whole, atol=1e-4)
    True

    The logits of a few rows at a time, their softmax and their gradients stay in the processor's cache. Gradients are
    computed on the way forward, so there are none of the second order. There is no padding: pass real rows alone.
    """
    check_rows(states_RD, weight_WD, labels_R, bias_W, smoothing)
    total: Tensor = _LinearCrossEntropy.apply(states_RD, weight_WD, bias_W, labels_R, smoothing)  # type: ignore[no-untyped-call]
    return total


def check_rows(states_RD: Tensor, weight_WD: Tensor, labels_R: Tensor, bias_W: Tensor | None, smoothing: float) -> None:
    """Raise an `InputError` unless rows of states fit the weights, and each has one label of the vocabulary."""
    if states_RD.dim() != 2 or labels_R.shape != states_RD.shape[:1]:
        raise InputError(f"rows {tuple(states_RD.shape)} need one label each, got {tuple(labels_R.shape)}")
    if weight_WD.dim() != 2 or weight_WD.size(1) != states_RD.size(1):
        raise InputError(f"rows {tuple(states_RD.shape)} do not fit weights {tuple(weight_WD.shape)}")
    if bias_W is not None and bias_W.shape != weight_WD.shape[:1]:
        raise InputError(f"weights {tuple(weight_WD.shape)} need a bias for each word, got {tuple(bias_W.shape)}")
    if labels_R.device != states_RD.device:
        raise InputError(f"labels are on {labels_R.device}, and the rows that they are for on {states_RD.device}")
    _check_smoothing(smoothing)
    _check_labels(labels_R, weight_WD.size(0))


class _LinearCrossEntropy(torch.autograd.Function):
    """The gradient for the logits is softmax(z) - q, q the smoothed labels.

    The uniform part of q is the same for every row, so it is taken out of the rows and added once, at the end: with
    W̄ the sum of the weights over the vocabulary, it is ε/W · W̄ for each state, and ε/W · Σh for each weight.
    """

    @staticmethod
    def forward(
        ctx: Any, states_RD: Tensor, weight_WD: Tensor, bias_W: Tensor | None, labels_R: Tensor, smoothing: float
    ) -> Tensor:
        device = states_RD.device.type
        product = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight_WD.dtype
        wide = torch.promote_types(weight_WD.dtype, torch.float32)
        uniform = smoothing / weight_WD.size(0)
        states, weight = states_RD.detach().to(product), weight_WD.detach().to(product)
        state_gradient = torch.empty_like(states_RD, dtype=weight_WD.dtype)
        weight_gradient = torch.zeros_like(weight_WD)
        bias_gradient = None if bias_W is None else torch.zeros_like(bias_W)
        total = states.new_zeros((), dtype=wide)
        for start in range(0, labels_R.size(0), ROWS):
            rows = slice(start, start + ROWS)
            logits = float_product(states[rows], weight, bias_W)
            surprise, change = _surprise(logits.to(wide), labels_R[rows], smoothing)
            total += surprise
            if bias_gradient is not None:
                bias_gradient += change.sum(0)
            if product == wide:  # each result where it is wanted, without another pass over it
                put_product(change, weight.T, state_gradient[rows])
                put_product(change.T, states[rows].T, weight_gradient, add=True)
            else:
                change = change.to(product)
                state_gradient[rows] = change @ weight
                weight_gradient += change.T @ states[rows]
        total -= uniform * (states_RD.detach().sum(0) @ weight_WD.detach().sum(0)).to(wide)
        if bias_W is not None:
            total -= uniform * labels_R.size(0) * bias_W.detach().sum()
        state_gradient -= uniform * weight_WD.detach().sum(0)
        weight_gradient -= uniform * states_RD.detach().sum(0)
        if bias_gradient is not None:
            bias_gradient -= uniform * labels_R.size(0)
        ctx.save_for_backward(state_gradient, weight_gradient, bias_gradient)
        ctx.state_type = states_RD.dtype
        return total

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        return *scaled_gradients(ctx, outer[0], "linear_cross_entropy"), None, None


def scaled_gradients(ctx: Any, outer: Tensor, name: str) -> tuple[Tensor | None, ...]:
    """Give the gradients that were computed on the way forward, for states, weight and bias, times the outer one."""
    refuse_second_derivatives(name, "label_smoothed_cross_entropy")
    states, weight, bias = ctx.saved_tensors
    factor = outer.to(weight.dtype)
    return (states * factor).to(ctx.state_type), weight * factor, None if bias is None else bias * factor


def _surprise(logits_RW: Tensor, labels_R: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Sum -log p + ε · z of the labels, and give softmax(z) - (1 - ε) · one-hot, which may be in the place of z.

    The smoothed label's loss is (1 - ε)(lse - z_y) + ε (lse - z̄) = -log p_y + ε · z_y - ε · z̄; the last term, with the
    mean of all logits, is the caller's.
    """
    R, W = logits_RW.shape
    if can_compute(logits_RW) and logits_RW.is_contiguous() and R * W > 0:
        surprises_R = torch.empty(R, dtype=torch.float32, device="cpu")
        labels_R = labels_R.long().contiguous()
        library().regard_surprise(
            logits_RW.data_ptr(), labels_R.data_ptr(), R, W, smoothing, threads(), surprises_R.data_ptr()
        )
        return surprises_R.sum(), logits_RW
    at = labels_R[:, None]
    chances_RW = logits_RW.softmax(-1)
    surprise = _minus_log(chances_RW, logits_RW, at) + smoothing * logits_RW.gather(1, at).sum()
    return surprise, chances_RW.scatter_add_(1, at, chances_RW.new_full(at.shape, smoothing - 1.0))


def _minus_log(chances_RW: Tensor, logits_RW: Tensor, at: Tensor) -> Tensor:
    """Sum -log p of the labels."""
    likely = chances_RW.gather(1, at)
    if float(likely.min()) < 1e-30:  # too small for its logarithm: from the logits, then
        return (logits_RW.logsumexp(-1, keepdim=True) - logits_RW.gather(1, at)).sum()
    return -likely.log().sum()
