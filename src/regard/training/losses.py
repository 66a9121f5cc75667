"""Training losses. A loss is a function of the model and a batch that gives a sum over target tokens.

It comes from the states, by the output projection's own `loss`; where a model's `forward` or `logits` are its own, from
the logits that these return.

With adaptive computation time, the ponder cost of the tokens of source and target is a part of it.
"""

from collections.abc import Callable

from torch import Tensor

from regard.acceleration.varlen import decoder_states
from regard.errors import ConfigError
from regard.layers import AdaptiveDecoder, AdaptiveEncoder, OutputProjection
from regard.model import Transformer
from regard.model.own_forward import changes_logits, has_own_forward
from regard.model.undescribed import REPLACES
from regard.ops import label_smoothed_cross_entropy, r_drop_loss
from regard.ops.rng import keys_by_position
from regard.training.examples import Batch
from regard.training.recipe import Training

Loss = Callable[[Transformer, Batch], Tensor]
"""The loss of a batch, summed over its target tokens; the loop divides by the tokens of the whole step."""

LossAt = Callable[[int], Loss]
"""The loss of each step, counted from 1."""


def cross_entropy(smoothing: float = 0.1, pad_id: int = 0) -> Loss:
    """Return the recipe's loss: cross-entropy against smoothed labels, by the model's output projection."""

    def loss(model: Transformer, batch: Batch) -> Tensor:
        if model.config.kind == "encoder-only":
            return head_loss(model, batch, smoothing)
        real_BT = batch.labels_BT != pad_id
        if changes_logits(model):
            logits_RW = _own_logits(model, batch, real_BT)
            return label_smoothed_cross_entropy(
                logits_RW, batch.labels_BT[real_BT], smoothing=smoothing, reduction="sum"
            )
        costs: list[Tensor] = []
        states_RD = decoder_states(model, batch.source_BS, batch.target_BT, real_BT, costs=costs)
        with keys_by_position(*real_BT.nonzero(as_tuple=True)):
            total: Tensor = model.output.loss(states_RD, batch.labels_BT[real_BT], smoothing=smoothing)
        return total + sum(cost.sum() for cost in costs)

    return loss


def head_loss(model: Transformer, batch: Batch, smoothing: float = 0.0) -> Tensor:
    """Return the loss of an encoder's head, summed over the examples."""
    _check_states_suffice(model)
    memory = model.encode(batch.source_BS)
    labels = batch.labels_BT[:, 0] if batch.labels_BT.size(1) == 1 else batch.labels_BT
    loss: Tensor = model.output.loss(memory.states_BSD, labels, memory.mask, smoothing=smoothing)
    return loss


def plain_loss(model: Transformer, batch: Batch) -> Tensor:
    """Return the cross-entropy of a batch, labels not smoothed, as the model itself computes it, summed."""
    if model.config.kind == "encoder-only":
        return head_loss(model, batch)
    real_BT = batch.labels_BT != model.config.pad_id
    if changes_logits(model):
        logits_RW = _own_logits(model, batch, real_BT)
        return label_smoothed_cross_entropy(logits_RW, batch.labels_BT[real_BT], smoothing=0.0, reduction="sum")
    memory = None if model.encoder is None else model.encode(batch.source_BS)
    states_BTD = model.decode(batch.target_BT, memory)
    loss: Tensor = model.output.loss(states_BTD[real_BT], batch.labels_BT[real_BT], smoothing=0.0)
    return loss


def r_drop(alpha: float, smoothing: float = 0.1, pad_id: int = 0) -> Loss:
    """Return R-Drop's loss: two passes, other units dropped in each, that are to agree (`regard.ops.r_drop_loss`)."""

    def loss(model: Transformer, batch: Batch) -> Tensor:
        real_BT = batch.labels_BT != pad_id
        source_BS, target_BT = batch.source_BS, batch.target_BT
        if changes_logits(model):
            first_RW, second_RW = (_own_logits(model, batch, real_BT) for _ in range(2))
            return r_drop_loss(first_RW, second_RW, batch.labels_BT[real_BT], smoothing=smoothing, alpha=alpha)
        if _has_own_loss(model.output):
            raise ConfigError(
                f"R-Drop is computed by the output's r_drop_loss, and {type(model.output).__name__} has a loss of its "
                "own only; override both"
            )
        costs: list[Tensor] = []
        first_RD, second_RD = (decoder_states(model, source_BS, target_BT, real_BT, costs=costs) for _ in range(2))
        with keys_by_position(*real_BT.nonzero(as_tuple=True)):
            total: Tensor = model.output.r_drop_loss(
                first_RD, second_RD, batch.labels_BT[real_BT], smoothing=smoothing, alpha=alpha
            )
        return total + sum(cost.sum() for cost in costs)

    return loss


def _own_logits(model: Transformer, batch: Batch, real_BT: Tensor) -> Tensor:
    """Return the logits RW of the real target tokens, by the model's own `forward` or `logits`."""
    if model.config.copying or _halts(model):
        _check_states_suffice(model)
    if has_own_forward(model):
        logits_BTW: Tensor = model(None if model.encoder is None else batch.source_BS, batch.target_BT)
        return logits_BTW[real_BT]
    memory = None if model.encoder is None else model.encode(batch.source_BS)
    return model.logits(model.decode(batch.target_BT, memory))[real_BT]


def _halts(model: Transformer) -> bool:
    return any(isinstance(stack, AdaptiveEncoder | AdaptiveDecoder) for stack in (model.encoder, model.decoder))


def _check_states_suffice(model: Transformer) -> None:
    """Raise a `ConfigError` where a loss needs more than logits, and the model changes its logits."""
    if changes_logits(model):
        raise ConfigError(
            f"a {type(model).__name__} with a head, copying or adaptive steps takes its loss from its states, not from "
            "a forward or logits of its own; change its output instead"
        )


def _has_own_loss(output: OutputProjection) -> bool:
    """Whether an output projection overrides `loss` without `r_drop_loss`."""
    names = ("loss", "r_drop_loss")
    classes = [cls for cls in type(output).__mro__ if REPLACES not in vars(cls)]
    at = [
        -1 if name in vars(output) else next(i for i, cls in enumerate(classes) if name in vars(cls)) for name in names
    ]
    return at[0] < at[1]


def losses_of(training: Training) -> LossAt:
    """Return the losses that a run's settings ask for."""
    one_pass = cross_entropy(training.label_smoothing)
    if training.r_drop == 0.0:
        return lambda step: one_pass
    two_passes = r_drop(training.r_drop, training.label_smoothing)
    return lambda step: two_passes if step >= training.r_drop_from else one_pass
