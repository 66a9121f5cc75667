"""The loss of the training recipe with a gradient of which small elements are drawn."""

import ctypes
from typing import Any

import torch
from torch import Tensor

from regard.native import LANES, can_compute, library, threads
from regard.ops.draws import GOLDEN, drawn_words
from regard.ops.linear import linear
from regard.ops.loss import ROWS, check_rows, scaled_gradients

SMALL = 2.0**-8
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
    mean is g. A few hundred are left of many thousands, and products with them take a fraction of the time. What chance
    adds to g has a length of √(SMALL · Σ|g|) at most, some hundredths, and the g of a token that is not yet known well
    one of about 1: tokens differ by far more.

    In `products_in_bytes`, the logits are products of bytes, but for their mean in the smoothed part of the loss.

    What is drawn for a row is keyed as dropout is: inside `dropout_keyed_by`, `keys_of_positions` says which is which.
    """
    check_rows(states_RD, weight_WD, labels_R, bias_W, smoothing)
    words_R = drawn_words(states_RD.detach())
    total: Tensor = _DrawnCrossEntropy.apply(states_RD, weight_WD, bias_W, labels_R, words_R, smoothing)  # type: ignore[no-untyped-call]
    return total


class _Drawing(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in "RWD"),
        *((name, ctypes.c_void_p) for name in ("logits", "labels", "starts", "states", "weight")),
        *((name, ctypes.c_float) for name in ("smoothing", "small")),
        *((name, ctypes.c_void_p) for name in ("surprises", "state_gradient", "weight_gradient", "bias_gradient")),
    )


class _DrawnCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states_RD: Tensor,
        weight_WD: Tensor,
        bias_W: Tensor | None,
        labels_R: Tensor,
        words_R: Tensor,
        smoothing: float,
    ) -> Tensor:
        states, weight = states_RD.detach().to(weight_WD.dtype).contiguous(), weight_WD.detach()
        wide = torch.promote_types(weight.dtype, torch.float32)
        gradients = (
            torch.empty_like(states),
            torch.zeros_like(weight),
            None if bias_W is None else torch.zeros_like(bias_W),
        )
        labels_R = labels_R.long().contiguous()
        total = states.new_zeros((), dtype=wide)
        for start in range(0, labels_R.size(0), ROWS):
            rows = slice(start, start + ROWS)
            logits_RW = linear(states[rows], weight, None if bias_W is None else bias_W.detach())
            of_rows = (gradients[0][rows], *gradients[1:])
            draw = _by_kernel if _can_draw(logits_RW, states, weight, bias_W) else _by_formula
            total += draw(logits_RW.to(wide), labels_R[rows], words_R[rows], states[rows], weight, smoothing, of_rows)
        total -= smoothing / weight.size(0) * (states.sum(0) @ weight.sum(0)).to(wide)
        if bias_W is not None:
            total -= smoothing / weight.size(0) * labels_R.size(0) * bias_W.detach().sum()
        ctx.save_for_backward(*gradients)
        ctx.state_type = states_RD.dtype
        return total

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        return *scaled_gradients(ctx, outer[0], "drawn_cross_entropy"), None, None, None


_Gradients = tuple[Tensor, Tensor, Tensor | None]
"""Where the gradients go for states, weight and bias; to the last two they are added."""


def _can_draw(logits_RW: Tensor, states_RD: Tensor, weight_WD: Tensor, bias_W: Tensor | None) -> bool:
    tensors = [states_RD, weight_WD, *([] if bias_W is None else [bias_W])]
    return (
        logits_RW.numel() > 0
        and states_RD.size(1) % LANES == 0
        and can_compute(*tensors)
        and all(tensor.is_contiguous() for tensor in tensors)
    )


def _by_kernel(
    logits_RW: Tensor,
    labels_R: Tensor,
    words_R: Tensor,
    states_RD: Tensor,
    weight_WD: Tensor,
    smoothing: float,
    gradients: _Gradients,
) -> Tensor:
    surprises_R = torch.empty(labels_R.size(0), dtype=torch.float32, device="cpu")
    logits_RW, words_R = logits_RW.contiguous(), words_R.contiguous()
    drawing = _Drawing(
        *(*logits_RW.shape, states_RD.size(1)),
        *(x.data_ptr() for x in (logits_RW, labels_R, words_R, states_RD, weight_WD)),
        *(smoothing, SMALL),
        *(None if x is None else x.data_ptr() for x in (surprises_R, *gradients)),
    )
    library().regard_drawn_loss(ctypes.byref(drawing), threads())
    return surprises_R.sum()


def _by_formula(
    logits_RW: Tensor,
    labels_R: Tensor,
    words_R: Tensor,
    states_RD: Tensor,
    weight_WD: Tensor,
    smoothing: float,
    gradients: _Gradients,
) -> Tensor:
    """Draw the same by torch alone, and multiply with everything that was not kept, too."""
    at = labels_R[:, None]
    W = logits_RW.size(1)
    change_RW = logits_RW.softmax(-1).sub_(smoothing / W)
    change_RW.scatter_add_(1, at, change_RW.new_full(at.shape, smoothing - 1.0))
    change_RW = drawn_from(change_RW, words_R).to(weight_WD.dtype)
    gradients[0].copy_(change_RW @ weight_WD)
    gradients[1].addmm_(change_RW.T, states_RD)
    if gradients[2] is not None:
        gradients[2].add_(change_RW.sum(0))
    given = logits_RW.gather(1, at)
    return (logits_RW.logsumexp(-1, keepdim=True) - (1.0 - smoothing) * given).sum()


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
