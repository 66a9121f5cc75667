"""Heads of an encoder: the label of a whole sequence, and a span of its positions."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.layers.dropout import Dropout
from regard.ops import label_smoothed_cross_entropy
from regard.ops.dropout import checked_rate

Pooling = Literal["mean", "first"]


class ClassificationHead(nn.Module):
    """Logits of a sequence's labels: pooled states, dropout, and a linear projection.

    >>> states, mask = torch.randn(2, 5, 8), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]).bool()[:, None, None]
    >>> head = ClassificationHead(d_model=8, labels=3)
    >>> head(states, mask).shape
    torch.Size([2, 3])
    >>> torch.allclose(head(states, mask)[1], head(states[1:, :2])[0], atol=1e-6)  # padding makes no difference
    True

    States are pooled to their mean over the positions that are not padding, or to the first of them (as BERT's [CLS],
    Devlin et al. 2019). A sequence of nothing but padding is pooled to zeros.
    """

    def __init__(self, d_model: int, labels: int, *, pooling: Pooling = "mean", dropout: float = 0.0) -> None:
        super().__init__()
        if pooling not in get_args(Pooling):
            raise InputError(f"pooling is {pooling!r}; it is one of {', '.join(get_args(Pooling))}")
        self.pooling = pooling
        self.dropout = Dropout(dropout)
        self.linear = _projection(d_model, labels)

    def forward(self, states_BSD: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits BY; the mask (B, 1, 1, S) is True for positions that are not padding."""
        logits_BY: Tensor = self.linear(self.dropout(self.pool(states_BSD, mask)))
        return logits_BY

    def pool(self, states_BSD: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return one state for each sequence, BD."""
        real_BS1 = _real_positions(states_BSD, mask)
        states_BSD = states_BSD.masked_fill(~real_BS1, 0.0)
        if self.pooling == "first":
            return states_BSD[:, :1].sum(1)
        return states_BSD.sum(1) / real_BS1.sum(1).clamp(min=1)

    def loss(
        self, states_BSD: Tensor, labels_B: Tensor, mask: Tensor | None = None, *, smoothing: float = 0.0
    ) -> Tensor:
        """Return the label-smoothed cross-entropy of the labels of sequences, summed over them."""
        logits_BY = self(states_BSD, mask)
        Y = logits_BY.size(-1)
        if labels_B.device.type == "cpu" and bool(((labels_B < 0) | (labels_B >= Y)).any()):
            wrong = next(label for label in labels_B.flatten().tolist() if not 0 <= label < Y)
            raise InputError(f"label {wrong} is not one of the {Y} labels that the model has, 0 to {Y - 1}")
        return label_smoothed_cross_entropy(logits_BY, labels_B, smoothing=smoothing, reduction="sum")


class SpanHead(nn.Module):
    """The logits of where a span starts and ends in a sequence, as for extractive question answering.

    >>> head = SpanHead(d_model=8)
    >>> head(torch.randn(2, 5, 8)).shape  # a start and an end at each position
    torch.Size([2, 5, 2])
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.linear = _projection(d_model, 2)

    def forward(self, states_BSD: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits BS2 of starts and ends, -∞ for padding; the mask (B, 1, 1, S) is True elsewhere."""
        logits_BS2: Tensor = self.linear(states_BSD)
        return logits_BS2.masked_fill(~_real_positions(states_BSD, mask), -torch.inf)

    def loss(
        self, states_BSD: Tensor, spans_B2: Tensor, mask: Tensor | None = None, *, smoothing: float = 0.0
    ) -> Tensor:
        """Return the cross-entropy of the first and last positions of spans, the mean of the two, summed over spans.

        The mean, as in BERT: so a span counts as much as a label, and a rate that suits labels suits spans. What is
        smoothed goes to the positions that are possible, those whose logits are not -∞.
        """
        checked_rate(smoothing, "label smoothing")
        logits_BS2: Tensor = self(states_BSD, mask)
        possible_BS2 = logits_BS2 != -torch.inf
        _check_spans(spans_B2, possible_BS2)
        logs_BS2 = logits_BS2.to(torch.promote_types(logits_BS2.dtype, torch.float32)).log_softmax(1)
        losses_B2 = -logs_BS2.gather(1, spans_B2[:, None].long())[:, 0]
        if smoothing > 0.0:
            uniform_B2 = -logs_BS2.masked_fill(~possible_BS2, 0.0).sum(1) / possible_BS2.sum(1)
            losses_B2 = (1.0 - smoothing) * losses_B2 + smoothing * uniform_B2
        return losses_B2.sum() / 2


Head = ClassificationHead | SpanHead


def _projection(d_model: int, width: int) -> nn.Linear:
    """Return a linear layer, Xavier-uniform with a bias of zero as the model's other projections."""
    linear = nn.Linear(d_model, width)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def _real_positions(states_BSD: Tensor, mask: Tensor | None) -> Tensor:
    """Return which positions are not padding, BS1."""
    if states_BSD.dim() != 3:
        raise InputError(f"a head takes states of shape (batch, length, d_model); got {tuple(states_BSD.shape)}")
    B, S, _ = states_BSD.shape
    if mask is None:
        return torch.ones(B, S, 1, dtype=torch.bool, device=states_BSD.device)
    if mask.dtype != torch.bool or tuple(mask.shape) != (B, 1, 1, S):
        raise InputError(
            f"the mask of a head is boolean, of shape ({B}, 1, 1, {S}); got {mask.dtype} of shape {tuple(mask.shape)}"
        )
    return mask[:, 0, 0, :, None]


def _check_spans(spans_B2: Tensor, possible_BS2: Tensor) -> None:
    """Raise an `InputError` for spans that are not in their sequences; only on the CPU, where this costs no wait."""
    B, S, _ = possible_BS2.shape
    if tuple(spans_B2.shape) != (B, 2) or spans_B2.is_floating_point() or spans_B2.dtype == torch.bool:
        raise InputError(
            f"spans are integers of shape ({B}, 2), a first and a last position each; "
            f"got {spans_B2.dtype} of shape {tuple(spans_B2.shape)}"
        )
    if spans_B2.device.type != "cpu":
        return
    first_B, last_B = spans_B2.long().unbind(1)
    inside_B = (first_B >= 0) & (first_B <= last_B) & (last_B < S)
    at_B12 = spans_B2[:, None].long().clamp(0, max(S - 1, 0))
    if S > 0:
        inside_B &= possible_BS2.gather(1, at_B12)[:, 0].all(1)
    if not inside_B.all():
        row = int(inside_B.int().argmin())
        first, last = spans_B2[row].tolist()
        raise InputError(f"the span {first} to {last} of row {row} is not among the positions of its sequence")
