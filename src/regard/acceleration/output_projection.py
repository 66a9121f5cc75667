"""The loss of the output projection, fused with its matmul or with a sampled gradient."""

import torch
from torch import Tensor

from regard.acceleration.fused_loss import linear_cross_entropy
from regard.acceleration.known import reference_type, register_replacement
from regard.acceleration.sampled_loss import sampled_cross_entropy, sampled_r_drop
from regard.errors import InputError
from regard.kernels.dispatch import is_traced
from regard.layers import FactorizedOutputProjection, OutputProjection


@register_replacement
class FusedOutputProjection(OutputProjection):
    """The loss of logits that are never all in memory; a few rows of them stay in the cache."""

    def loss(self, states: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
        """Return the label-smoothed cross-entropy of labels (…) under states (…, D), summed over them."""
        if not _can_fuse(self):
            return super().loss(states, labels, smoothing=smoothing)
        labels_R, states_RD = _rows(labels, states)
        return linear_cross_entropy(states_RD, self.weight, labels_R, bias_W=self.bias, smoothing=smoothing)


@register_replacement
class FusedFactorizedOutputProjection(FactorizedOutputProjection):
    """The same for logits by two matrices."""

    def loss(self, states: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
        """Return the label-smoothed cross-entropy of labels (…) under states (…, D), summed over them."""
        if not _can_fuse(self):
            return super().loss(states, labels, smoothing=smoothing)
        labels_R, states_RD = _rows(labels, states)
        states_RE = states_RD @ self.projection
        return linear_cross_entropy(states_RE, self.weight, labels_R, bias_W=self.bias, smoothing=smoothing)


@register_replacement
class SampledOutputProjection(OutputProjection):
    """The same loss with a sampled gradient: unbiased, and a fraction of the work. See `sampled_loss`."""

    int8 = False

    def loss(self, states: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
        """Return the label-smoothed cross-entropy of labels (…) under states (…, D), summed over them."""
        if not _can_fuse(self):
            return super().loss(states, labels, smoothing=smoothing)
        labels_R, states_RD = _rows(labels, states)
        return sampled_cross_entropy(
            states_RD,
            self.weight,
            labels_R,
            bias_W=self.bias,
            smoothing=smoothing,
            int8=self._use_int8(states),
        )

    def r_drop_loss(
        self, first: Tensor, second: Tensor, labels: Tensor, *, smoothing: float = 0.0, alpha: float = 1.0
    ) -> Tensor:
        """Return R-Drop's loss of the states of two passes, summed over the labels (…)."""
        if not _can_fuse(self):
            return super().r_drop_loss(first, second, labels, smoothing=smoothing, alpha=alpha)
        labels_R, first_RD, second_RD = _rows(labels, first, second)
        return sampled_r_drop(
            first_RD,
            second_RD,
            self.weight,
            labels_R,
            bias_W=self.bias,
            smoothing=smoothing,
            alpha=alpha,
            int8=self._use_int8(first),
        )

    def _use_int8(self, states: Tensor) -> bool:
        return self.int8 and self.training and states.dtype == self.weight.dtype == torch.float32


@register_replacement
class Int8SampledOutputProjection(SampledOutputProjection):
    """The same with logits from an int8 matmul."""

    int8 = True


def _can_fuse(output: OutputProjection) -> bool:
    """Whether the loss may go past `forward`: it is for gradients, and nothing hooks, changes or traces it."""
    return torch.is_grad_enabled() and not is_traced() and reference_type(output) is not None


def _rows(labels: Tensor, *passes: Tensor) -> tuple[Tensor, ...]:
    """Return labels (…) and the states (…, D) of passes as rows; raise an `InputError` where they do not fit."""
    for states in passes:
        if labels.shape != states.shape[:-1]:
            raise InputError(f"labels of shape {tuple(labels.shape)} do not fit states of shape {tuple(states.shape)}")
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise InputError(f"labels are token numbers and must be integers, got {labels.dtype}")
    return labels.flatten().long(), *(states.reshape(-1, states.size(-1)) for states in passes)
