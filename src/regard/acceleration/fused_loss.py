"""Cross-entropy of a linear layer's logits, a few rows at a time, so that they stay in the processor's cache."""

from typing import Any

import torch
from torch import Tensor

from regard.acceleration.derivatives import refuse_second_derivatives
from regard.acceleration.sgemm import sgemm, sgemm_into
from regard.errors import InputError
from regard.kernels.bindings import library
from regard.kernels.dispatch import can_compute, threads
from regard.ops.dropout import checked_rate
from regard.ops.losses import check_labels

ROWS = 512  # of logits that are worked on at a time: few enough for the cache, enough for the matrix products


def linear_cross_entropy(
    states_RD: Tensor, weight_WD: Tensor, labels_R: Tensor, *, bias_W: Tensor | None = None, smoothing: float = 0.1
) -> Tensor:
    """Return the summed label-smoothed cross-entropy of the logits h·Wᵀ + b, without ever holding all of them.

    >>> states, weight, labels = torch.randn(5, 4), torch.randn(9, 4), torch.randint(9, (5,))
    >>> from regard.ops import label_smoothed_cross_entropy
    >>> whole = label_smoothed_cross_entropy(states @ weight.T, labels, reduction="sum")
    >>> torch.allclose(linear_cross_entropy(states, weight, labels), whole, atol=1e-4)
    True

    The logits of a few rows at a time, their softmax and their gradients stay in the processor's cache. Gradients are
    computed in the forward pass, so there are none of the second order. There is no padding: pass real rows alone.
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
    checked_rate(smoothing, "label smoothing")
    check_labels(labels_R, weight_WD.size(0))


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
            logits = sgemm(states[rows], weight, bias_W)
            nll, grad = _nll(logits.to(wide), labels_R[rows], smoothing)
            total += nll
            if bias_gradient is not None:
                bias_gradient += grad.sum(0)
            if product == wide:  # each result where it is wanted, without another pass over it
                sgemm_into(grad, weight.T, state_gradient[rows])
                sgemm_into(grad.T, states[rows].T, weight_gradient, add=True)
            else:
                grad = grad.to(product)
                state_gradient[rows] = grad @ weight
                weight_gradient += grad.T @ states[rows]
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
    """Return the gradients that were computed in the forward pass, for states, weight and bias, times the outer one."""
    refuse_second_derivatives(name, "label_smoothed_cross_entropy")
    states, weight, bias = ctx.saved_tensors
    factor = outer.to(weight.dtype)
    return (states * factor).to(ctx.state_type), weight * factor, None if bias is None else bias * factor


def _nll(logits_RW: Tensor, labels_R: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Sum -log p + ε · z of the labels, and give softmax(z) - (1 - ε) · one-hot, which may be in the place of z.

    The smoothed label's loss is (1 - ε)(lse - z_y) + ε (lse - z̄) = -log p_y + ε · z_y - ε · z̄; the last term, with the
    mean of all logits, is the caller's.
    """
    R, W = logits_RW.shape
    if can_compute(logits_RW) and logits_RW.is_contiguous() and R * W > 0:
        nlls_R = torch.empty(R, dtype=torch.float32, device="cpu")
        labels_R = labels_R.long().contiguous()
        library().regard_nll(logits_RW.data_ptr(), labels_R.data_ptr(), R, W, smoothing, threads(), nlls_R.data_ptr())
        return nlls_R.sum(), logits_RW
    at = labels_R[:, None]
    lse_R1 = logits_RW.logsumexp(-1, keepdim=True)
    nll = (lse_R1 - logits_RW.gather(1, at)).sum() + smoothing * logits_RW.gather(1, at).sum()
    probs_RW = (logits_RW - lse_R1).exp()
    return nll, probs_RW.scatter_add_(1, at, probs_RW.new_full(at.shape, smoothing - 1.0))
