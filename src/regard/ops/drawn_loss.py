"""The losses of training with a gradient of which small elements are drawn."""

import ctypes
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.errors import InputError
from regard.kernels.bindings import LANES, can_compute, library, threads
from regard.ops.linear import in_bytes, linear
from regard.ops.losses import ROWS, check_rows, scaled_gradients
from regard.ops.rng import GOLDEN, drawn_words

SMALL = 2.0**-6
"""Elements of the gradient for the logits that are smaller than this are drawn."""


def drawn_cross_entropy(
    states_RD: Tensor, weight_WD: Tensor, labels_R: Tensor, *, bias_W: Tensor | None = None, smoothing: float = 0.1
) -> Tensor:
    """Give the same loss as `linear_cross_entropy`, with a gradient that is right on average, and sooner there.

    >>> from regard.ops import linear_cross_entropy
    >>> states, weight, labels = torch.randn(5, 8), torch.randn(9, 8), torch.randint(9, (5,))
    >>> exact, drawn = linear_cross_entropy(states, weight, labels), drawn_cross_entropy(states, weight, labels)
    >>> torch.allclose(exact, drawn, atol=1e-4)
    True

    The gradient for the logits, g = softmax(z) - q with q the smoothed labels, has an element for every word, and
    nearly all of them are tiny. One that is smaller than `SMALL` is kept with the chance |g| / SMALL, as ±SMALL: its
    mean is g. A hundred or so are left of many thousands, and products with them take a fraction of the time. What
    chance adds to g has a length of √(SMALL · Σ|g|) at most, about a tenth, and the g of a token that is not yet known
    well one of about 1: tokens differ by far more.

    In `products_in_bytes`, the logits are products of bytes, but for their mean in the smoothed part of the loss.

    What is drawn for a row is keyed as dropout is: inside `dropout_keyed_by`, `keys_of_positions` says which is which.
    """
    check_rows(states_RD, weight_WD, labels_R, bias_W, smoothing)
    return _drawn_loss([states_RD], weight_WD, labels_R, bias_W, smoothing, agreement=0.0)


def drawn_agreement(
    first_RD: Tensor,
    second_RD: Tensor,
    weight_WD: Tensor,
    labels_R: Tensor,
    *,
    bias_W: Tensor | None = None,
    smoothing: float = 0.1,
    agreement: float = 1.0,
) -> Tensor:
    """Give the loss of two passes that are to agree, R-Drop's, with a gradient that is drawn likewise.

        ½ (CE₁ + CE₂) + α/4 · (KL(P₁‖P₂) + KL(P₂‖P₁))

    >>> from regard.ops import linear_cross_entropy
    >>> states, weight, labels = torch.randn(5, 8), torch.randn(9, 8), torch.randint(9, (5,))
    >>> same = drawn_agreement(states, states, weight, labels)  # they agree already
    >>> torch.allclose(same, linear_cross_entropy(states, weight, labels), atol=1e-4)
    True

    It is summed over the rows; `agreement` is α. The two passes are of the same tokens, with other units dropped.
    """
    if first_RD.shape != second_RD.shape:
        raise InputError(f"passes of shapes {tuple(first_RD.shape)} and {tuple(second_RD.shape)} have other rows")
    if not agreement >= 0.0:
        raise InputError(f"agreement is {agreement}; it must be at least 0")
    check_rows(first_RD, weight_WD, labels_R, bias_W, smoothing)
    return _drawn_loss([first_RD, second_RD], weight_WD, labels_R, bias_W, smoothing, agreement)


def _drawn_loss(
    passes: list[Tensor],
    weight_WD: Tensor,
    labels_R: Tensor,
    bias_W: Tensor | None,
    smoothing: float,
    agreement: float,
) -> Tensor:
    words_PR = torch.stack([drawn_words(states_RD.detach()) for states_RD in passes])
    total: Tensor = _DrawnLoss.apply(  # type: ignore[no-untyped-call]
        torch.stack(passes), weight_WD, bias_W, labels_R, words_PR, smoothing, agreement
    )
    return total


class _Drawing(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in "PRWD"),
        *((name, ctypes.c_void_p) for name in ("logits", "labels", "starts", "states", "weight", "bias")),
        *((name, ctypes.c_float) for name in ("smoothing", "small", "agreement")),
        *((name, ctypes.c_void_p) for name in ("losses", "state_gradient", "weight_gradient", "bias_gradient")),
    )


class _DrawnLoss(torch.autograd.Function):
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
        agreement: float,
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
        at_once = (_ROWS_OF_BYTES if kernel and in_bytes(states) else ROWS) // P
        for start in range(0, R, at_once):
            rows = slice(start, start + at_once)
            some = states[:, rows].contiguous()
            piece = _Piece(some, weight, bias, labels_R[rows], words_PR[:, rows], smoothing, agreement)
            of_some = torch.empty_like(some)
            draw = piece.by_kernel if kernel else piece.by_formula
            total += draw((of_some, *of_weights))
            of_states[:, rows] = of_some
        # The uniform part of the labels looks at the mean of all logits, which takes no logits.
        total -= smoothing / weight.size(0) / P * (states.sum((0, 1)) @ weight.sum(0)).to(wide)
        if bias is not None:
            total -= smoothing / weight.size(0) * R * bias.sum()
        ctx.save_for_backward(of_states, *of_weights)
        ctx.state_type = states_PRD.dtype
        return total

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        return *scaled_gradients(ctx, outer[0], "a drawn loss"), None, None, None, None


_Gradients = tuple[Tensor, Tensor, Tensor | None]
"""Where the gradients go for states, weight and bias; to the last two they are added."""


_ROWS_OF_BYTES = 1024
"""Rows whose logits the kernel computes from bytes, a few at a time: the weights are rounded once for all of them."""


def _can_draw(states_PRD: Tensor, weight_WD: Tensor, bias_W: Tensor | None) -> bool:
    """Say whether there is a kernel for these."""
    tensors = [weight_WD, *([] if bias_W is None else [bias_W])]
    return (
        states_PRD.numel() * weight_WD.numel() > 0
        and states_PRD.size(-1) % LANES == 0
        and can_compute(states_PRD, *tensors)
        and all(tensor.is_contiguous() for tensor in tensors)
    )


@dataclass(frozen=True)
class _Piece:
    """Some rows of all passes, and what they are judged by."""

    states_PRD: Tensor
    weight_WD: Tensor
    bias_W: Tensor | None
    labels_R: Tensor
    words_PR: Tensor
    smoothing: float
    agreement: float

    def by_kernel(self, gradients: _Gradients) -> Tensor:
        """Give the loss; logits that are products of bytes are computed in the kernel, too."""
        logits_PRW = None if in_bytes(self.states_PRD) else self._logits()
        losses_R = torch.empty(self.labels_R.size(0), dtype=torch.float32, device="cpu")
        read = [self.labels_R, self.words_PR, self.states_PRD, self.weight_WD, self.bias_W]
        read = [None if x is None else x.contiguous() for x in (logits_PRW, *read)]
        drawing = _Drawing(
            *(*self.words_PR.shape, *self.weight_WD.shape),
            *(None if x is None else x.data_ptr() for x in read),
            *(self.smoothing, SMALL, self.agreement),
            *(None if x is None else x.data_ptr() for x in (losses_R, *gradients)),
        )
        library().regard_drawn_loss(ctypes.byref(drawing), threads())
        return losses_R.sum()

    def by_formula(self, gradients: _Gradients) -> Tensor:
        """Draw the same by torch alone, and multiply with everything that was not kept, too."""
        total, change_PRW = judged(self._logits(), self.labels_R, self.smoothing, self.agreement)
        change_NW = drawn_from(change_PRW.flatten(0, 1), self.words_PR.flatten()).to(self.weight_WD.dtype)
        gradients[0].copy_((change_NW @ self.weight_WD).view_as(self.states_PRD))
        gradients[1].addmm_(change_NW.T, self.states_PRD.flatten(0, 1))
        if gradients[2] is not None:
            gradients[2].add_(change_NW.sum(0))
        return total

    def _logits(self) -> Tensor:
        logits_PRW = linear(self.states_PRD, self.weight_WD, self.bias_W)
        return logits_PRW.to(torch.promote_types(self.weight_WD.dtype, torch.float32))


def judged(logits_PRW: Tensor, labels_R: Tensor, smoothing: float, agreement: float) -> tuple[Tensor, Tensor]:
    """Give the loss of one pass or two, but for the mean of the logits, and its whole gradient for the logits.

    With d = log P₁ - log P₂ and the smoothed labels q, that of the first of two is
    ½ (P₁ - q) + α/4 · (P₁ · (d - Σ P₁ d) + P₁ - P₂), and likewise for the second.
    """
    P, R, W = logits_PRW.shape
    at = labels_R.expand(P, R)[..., None]
    logs_PRW = logits_PRW.log_softmax(-1)
    chances_PRW = logs_PRW.exp()
    total = (smoothing * logits_PRW.gather(-1, at) - logs_PRW.gather(-1, at)).sum() / P
    change_PRW = chances_PRW - smoothing / W
    change_PRW.scatter_add_(-1, at, change_PRW.new_full(at.shape, smoothing - 1.0)).div_(P)
    if P == 2:
        apart_RW, moved_RW = logs_PRW[0] - logs_PRW[1], chances_PRW[0] - chances_PRW[1]
        total += agreement / 4 * (moved_RW * apart_RW).sum()
        means_PR1 = (chances_PRW * apart_RW).sum(-1, keepdim=True)
        pulls_PRW = chances_PRW * (apart_RW - means_PR1) + moved_RW
        change_PRW[0].add_(pulls_PRW[0], alpha=agreement / 4)
        change_PRW[1].sub_(pulls_PRW[1], alpha=agreement / 4)
    return total, change_PRW


def drawn_from(changes_RW: Tensor, words_R: Tensor) -> Tensor:
    """Give what is kept of these changes, each at least `SMALL`, and zero for the others.

    The chances of a row go round a circle in golden steps from a random start: each is as good as any, and together
    they are spread more evenly than if they had been drawn one by one.
    """
    numbers_W = torch.arange(changes_RW.size(1), device=changes_RW.device)
    chances_RW = (((words_R[:, None] + numbers_W * GOLDEN) & 0xFFFFFFFF) >> 1).to(changes_RW.dtype) * 2.0**-31
    sizes_RW = changes_RW.abs()
    left_RW = sizes_RW <= chances_RW * SMALL  # what is not a number is not left out
    return sizes_RW.clamp(min=SMALL).copysign(changes_RW).masked_fill(left_RW, 0.0)
