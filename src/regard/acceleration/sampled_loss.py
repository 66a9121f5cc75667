"""Losses whose gradient for the logits is sampled: unbiased, and a fraction of the work."""

import ctypes
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.acceleration.fused_loss import ROWS, check_rows, scaled_gradients
from regard.acceleration.int8_matmul import GOLDEN
from regard.acceleration.linear import int8_linear, sgemm_linear
from regard.errors import InputError
from regard.kernels.bindings import LANES, SampledLoss, library
from regard.kernels.dispatch import can_compute, threads
from regard.ops.rng import random_words, stream_starts

SMALL = 2.0**-6
"""Elements of the gradient for the logits that are smaller than this are sampled."""


def sampled_cross_entropy(
    states_RD: Tensor,
    weight_WD: Tensor,
    labels_R: Tensor,
    *,
    bias_W: Tensor | None = None,
    smoothing: float = 0.1,
    int8: bool = False,
) -> Tensor:
    """Return the loss of `linear_cross_entropy` with an unbiased gradient that takes a fraction of the time.

    >>> from regard.acceleration.fused_loss import linear_cross_entropy
    >>> states, weight, labels = torch.randn(5, 8), torch.randn(9, 8), torch.randint(9, (5,))
    >>> exact, sampled = linear_cross_entropy(states, weight, labels), sampled_cross_entropy(states, weight, labels)
    >>> torch.allclose(exact, sampled, atol=1e-4)
    True

    The gradient for the logits, g = softmax(z) - q with q the smoothed labels, has an element for every word, and
    nearly all of them are tiny. One that is smaller than `SMALL` is kept with the probability |g| / SMALL, as ±SMALL:
    its mean is g. A hundred or so are left of many thousands, and products with them take a fraction of the time. The
    noise that sampling adds to g has a length of √(SMALL · Σ|g|) at most, about a tenth, and the g of a token that is
    not yet known well one of about 1: tokens differ by far more.

    With `int8`, the logits come from an int8 matmul, but for their mean in the smoothed part of the loss.

    The samples of a row are keyed as dropout is: inside `keyed_dropout`, `keys_by_position` says which is which.
    """
    check_rows(states_RD, weight_WD, labels_R, bias_W, smoothing)
    return _sampled_loss([states_RD], weight_WD, labels_R, bias_W, smoothing, 0.0, int8)


def sampled_r_drop(
    first_RD: Tensor,
    second_RD: Tensor,
    weight_WD: Tensor,
    labels_R: Tensor,
    *,
    bias_W: Tensor | None = None,
    smoothing: float = 0.1,
    alpha: float = 1.0,
    int8: bool = False,
) -> Tensor:
    """Return R-Drop's loss, `regard.ops.r_drop_loss` of the logits, with a gradient that is sampled likewise.

    >>> from regard.acceleration.fused_loss import linear_cross_entropy
    >>> states, weight, labels = torch.randn(5, 8), torch.randn(9, 8), torch.randint(9, (5,))
    >>> same = sampled_r_drop(states, states, weight, labels)  # they agree already
    >>> torch.allclose(same, linear_cross_entropy(states, weight, labels), atol=1e-4)
    True
    """
    if first_RD.shape != second_RD.shape:
        raise InputError(f"passes of shapes {tuple(first_RD.shape)} and {tuple(second_RD.shape)} must be of one shape")
    if not alpha >= 0.0:
        raise InputError(f"alpha is {alpha}; it must be at least 0")
    check_rows(first_RD, weight_WD, labels_R, bias_W, smoothing)
    return _sampled_loss([first_RD, second_RD], weight_WD, labels_R, bias_W, smoothing, alpha, int8)


def _sampled_loss(
    passes: list[Tensor],
    weight_WD: Tensor,
    labels_R: Tensor,
    bias_W: Tensor | None,
    smoothing: float,
    alpha: float,
    int8: bool,
) -> Tensor:
    words_PR = torch.stack([_row_words(states_RD.detach()) for states_RD in passes])
    total: Tensor = _SampledLoss.apply(  # type: ignore[no-untyped-call]
        torch.stack(passes), weight_WD, bias_W, labels_R, words_PR, smoothing, alpha, int8
    )
    return total


def _row_words(x_RD: Tensor) -> Tensor:
    """Return one random word for each row of x."""
    starts_R = stream_starts(x_RD, per_word=max(1, x_RD.size(-1)))
    return random_words(starts_R, x_RD.size(0) // max(1, starts_R.size(0))).flatten()


class _SampledLoss(torch.autograd.Function):
    """Of P passes, one or two; their rows go together, some at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        states_PRD: Tensor,
        weight_WD: Tensor,
        bias_W: Tensor | None,
        labels_R: Tensor,
        words_PR: Tensor,
        smoothing: float,
        alpha: float,
        int8: bool,
    ) -> Tensor:
        states, weight = states_PRD.detach().to(weight_WD.dtype), weight_WD.detach()
        bias = None if bias_W is None else bias_W.detach()
        P, R = words_PR.shape
        wide = torch.promote_types(weight.dtype, torch.float32)
        of_states = torch.empty_like(states, memory_format=torch.contiguous_format)
        of_weights = torch.zeros_like(weight), None if bias is None else torch.zeros_like(bias)
        labels_R = labels_R.long()
        total = states.new_zeros((), dtype=wide)
        kernel = _can_draw(states, weight, bias)
        at_once = (_INT8_ROWS if kernel and int8 else ROWS) // P
        for start in range(0, R, at_once):
            rows = slice(start, start + at_once)
            some = states[:, rows].contiguous()
            piece = _Piece(some, weight, bias, labels_R[rows], words_PR[:, rows], smoothing, alpha, int8)
            of_some = torch.empty_like(some)
            draw = piece.by_kernel if kernel else piece.by_formula
            total += draw((of_some, *of_weights))
            of_states[:, rows] = of_some
        # The uniform part of the labels depends on the mean of all logits, which takes no logits.
        total -= smoothing / weight.size(0) / P * (states.sum((0, 1)) @ weight.sum(0)).to(wide)
        if bias is not None:
            total -= smoothing / weight.size(0) * R * bias.sum()
        ctx.save_for_backward(of_states, *of_weights)
        ctx.state_type = states_PRD.dtype
        return total

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        return *scaled_gradients(ctx, outer[0], "a sampled loss"), None, None, None, None, None


_Gradients = tuple[Tensor, Tensor, Tensor | None]
"""Where the gradients go for states, weight and bias; to the last two they are added."""


_INT8_ROWS = 1024
"""Rows whose logits the kernel computes from bytes, a few at a time: the weights are rounded once for all of them."""


def _can_draw(states_PRD: Tensor, weight_WD: Tensor, bias_W: Tensor | None) -> bool:
    """Whether there is a kernel for these."""
    tensors = [weight_WD, *([] if bias_W is None else [bias_W])]
    return (
        states_PRD.numel() * weight_WD.numel() > 0
        and states_PRD.size(-1) % LANES == 0
        and can_compute(states_PRD, *tensors)
        and all(tensor.is_contiguous() for tensor in tensors)
    )


@dataclass(frozen=True)
class _Piece:
    """A slice of rows of all passes, with the arguments of the loss."""

    states_PRD: Tensor
    weight_WD: Tensor
    bias_W: Tensor | None
    labels_R: Tensor
    words_PR: Tensor
    smoothing: float
    alpha: float
    int8: bool

    def by_kernel(self, gradients: _Gradients) -> Tensor:
        """Return the loss; logits of an int8 matmul are computed in the kernel, too."""
        logits_PRW = None if self.int8 else self._logits()
        losses_R = torch.empty(self.labels_R.size(0), dtype=torch.float32, device="cpu")
        read = [self.labels_R, self.words_PR, self.states_PRD, self.weight_WD, self.bias_W]
        read = [None if x is None else x.contiguous() for x in (logits_PRW, *read)]
        described = SampledLoss(
            *(*self.words_PR.shape, *self.weight_WD.shape),
            *(None if x is None else x.data_ptr() for x in read),
            *(self.smoothing, SMALL, self.alpha),
            *(None if x is None else x.data_ptr() for x in (losses_R, *gradients)),
        )
        library().regard_sampled_loss(ctypes.byref(described), threads())
        return losses_R.sum()

    def by_formula(self, gradients: _Gradients) -> Tensor:
        """Draw the same by torch alone, and multiply with everything that was not kept, too."""
        total, grad_PRW = loss_and_gradient(self._logits(), self.labels_R, self.smoothing, self.alpha)
        grad_NW = sampled_from(grad_PRW.flatten(0, 1), self.words_PR.flatten()).to(self.weight_WD.dtype)
        gradients[0].copy_((grad_NW @ self.weight_WD).view_as(self.states_PRD))
        gradients[1].addmm_(grad_NW.T, self.states_PRD.flatten(0, 1))
        if gradients[2] is not None:
            gradients[2].add_(grad_NW.sum(0))
        return total

    def _logits(self) -> Tensor:
        product = int8_linear if self.int8 else sgemm_linear
        logits_PRW = product(self.states_PRD, self.weight_WD, self.bias_W)
        return logits_PRW.to(torch.promote_types(self.weight_WD.dtype, torch.float32))


def loss_and_gradient(logits_PRW: Tensor, labels_R: Tensor, smoothing: float, alpha: float) -> tuple[Tensor, Tensor]:
    """Return the loss of one pass or two, but for the mean of the logits, and its whole gradient for the logits.

    With d = log P₁ - log P₂ and the smoothed labels q, that of the first of two is
    ½ (P₁ - q) + α/4 · (P₁ · (d - Σ P₁ d) + P₁ - P₂), and likewise for the second.
    """
    P, R, W = logits_PRW.shape
    at = labels_R.expand(P, R)[..., None]
    logs_PRW = logits_PRW.log_softmax(-1)
    probs_PRW = logs_PRW.exp()
    total = (smoothing * logits_PRW.gather(-1, at) - logs_PRW.gather(-1, at)).sum() / P
    grad_PRW = probs_PRW - smoothing / W
    grad_PRW.scatter_add_(-1, at, grad_PRW.new_full(at.shape, smoothing - 1.0)).div_(P)
    if P == 2:
        apart_RW, moved_RW = logs_PRW[0] - logs_PRW[1], probs_PRW[0] - probs_PRW[1]
        total += alpha / 4 * (moved_RW * apart_RW).sum()
        means_PR1 = (probs_PRW * apart_RW).sum(-1, keepdim=True)
        pulls_PRW = probs_PRW * (apart_RW - means_PR1) + moved_RW
        grad_PRW[0].add_(pulls_PRW[0], alpha=alpha / 4)
        grad_PRW[1].sub_(pulls_PRW[1], alpha=alpha / 4)
    return total, grad_PRW


def sampled_from(grads_RW: Tensor, words_R: Tensor) -> Tensor:
    """Return what is kept of these grads, each at least `SMALL`, and zero for the others.

    The thresholds of a row go round a circle in golden steps from a random start: each is as good as any, and together
    they are spread more evenly than independent ones.
    """
    numbers_W = torch.arange(grads_RW.size(1), device=grads_RW.device)
    probs_RW = (((words_R[:, None] + numbers_W * GOLDEN) & 0xFFFFFFFF) >> 1).to(grads_RW.dtype) * 2.0**-31
    sizes_RW = grads_RW.abs()
    left_RW = sizes_RW <= probs_RW * SMALL  # what is not a number is not left out
    return sizes_RW.clamp(min=SMALL).copysign(grads_RW).masked_fill(left_RW, 0.0)
