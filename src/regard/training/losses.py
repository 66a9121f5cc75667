"""Training losses. A loss is a function of the model and a batch that gives a sum over target tokens.

It comes from the states, by the output projection's own `loss`; where a model's `forward` or `logits` are its own, from
the logits that these return.

With adaptive computation time, the ponder cost of the tokens of source and target is a part of it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

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


def cross_entropy(smoothing: float = 0.1) -> Loss:
    """Return the recipe's loss: cross-entropy against smoothed labels, by the model's output projection."""

    def loss(model: Transformer, batch: Batch) -> Tensor:
        costs: list[Tensor] = []
        if model.config.kind == "encoder-only":
            total = head_loss(model, batch, smoothing, costs=costs)
        elif changes_logits(model):
            return label_smoothed_cross_entropy(
                _own_logits(model, batch), _labels(batch), smoothing=smoothing, reduction="sum"
            )
        else:
            states_RD = _states(model, batch, costs)
            with _keys(batch):
                total = model.output.loss(states_RD, _labels(batch), smoothing=smoothing)
        return total + sum(cost.sum() for cost in costs)

    return loss


def head_loss(model: Transformer, batch: Batch, smoothing: float = 0.0, *, costs: list[Tensor] | None = None) -> Tensor:
    """Return the loss of an encoder's head, summed over the examples; the ponder costs are appended to `costs`."""
    _check_states_suffice(model)
    found: list[Tensor] = []
    counting: dict[str, Any] = {} if costs is None or model.config.sharing.act is None else {"costs": found}
    memory = model.encode(batch.source_BS, **counting)
    if costs is not None:
        costs += [cost_BS * (batch.source_BS != model.config.pad_id) for cost_BS in found]
    labels = batch.labels_BT[:, 0] if batch.labels_BT.size(1) == 1 else batch.labels_BT
    loss: Tensor = model.output.loss(memory.states_BSD, labels, memory.mask, smoothing=smoothing)
    return loss


def plain_loss(model: Transformer, batch: Batch) -> Tensor:
    """Return the cross-entropy of a batch, labels not smoothed, as the model itself computes it, summed."""
    if model.config.kind == "encoder-only":
        return head_loss(model, batch)
    if changes_logits(model):
        return label_smoothed_cross_entropy(_own_logits(model, batch), _labels(batch), smoothing=0.0, reduction="sum")
    memory = None if model.encoder is None else model.encode(batch.source_BS)
    states_BTD = model.decode(batch.target_BT, memory)
    loss: Tensor = model.output.loss(_real(states_BTD, batch), _labels(batch), smoothing=0.0)
    return loss


def r_drop(alpha: float, smoothing: float = 0.1) -> Loss:
    """Return R-Drop's loss: two passes, other units dropped in each, that are to agree (`regard.ops.r_drop_loss`)."""

    def loss(model: Transformer, batch: Batch) -> Tensor:
        labels_R = _labels(batch)
        if changes_logits(model):
            first_RW, second_RW = (_own_logits(model, batch) for _ in range(2))
            return r_drop_loss(first_RW, second_RW, labels_R, smoothing=smoothing, alpha=alpha)
        if _has_own_loss(model.output):
            raise ConfigError(
                f"R-Drop is computed by the output's r_drop_loss, and {type(model.output).__name__} has a loss of its "
                "own only; override both"
            )
        costs: list[Tensor] = []
        first_RD, second_RD = (_states(model, batch, costs) for _ in range(2))
        with _keys(batch):
            total: Tensor = model.output.r_drop_loss(first_RD, second_RD, labels_R, smoothing=smoothing, alpha=alpha)
        return total + sum(cost.sum() for cost in costs) / 2  # the mean of both passes, as of their cross-entropies

    return loss


def _states(model: Transformer, batch: Batch, costs: list[Tensor]) -> Tensor:
    """Return the decoder's states RD for the real target tokens."""
    return decoder_states(
        model, batch.source_BS, batch.target_BT, batch.labels_BT != 0, places=batch.real_R, costs=costs
    )


def _real(x_BTX: Tensor, batch: Batch) -> Tensor:
    """Return the rows RX of the real target tokens."""
    return x_BTX.flatten(0, 1).index_select(0, batch.real_R)


def _labels(batch: Batch) -> Tensor:
    return batch.labels_BT.flatten().index_select(0, batch.real_R)


def _keys(batch: Batch) -> AbstractContextManager[None]:
    """Key what is sampled by the places of the real target tokens."""
    T = max(batch.labels_BT.size(1), 1)
    return keys_by_position(batch.real_R // T, batch.real_R % T)


def _own_logits(model: Transformer, batch: Batch) -> Tensor:
    """Return the logits RW of the real target tokens, by the model's own `forward` or `logits`."""
    if model.config.copying or _halts(model):
        _check_states_suffice(model)
    for name in ("loss", "r_drop_loss"):
        if _is_own(model.output, name):
            raise ConfigError(
                f"{type(model.output).__name__} has a {name} of its own, which takes states, and the model a forward, "
                "logits or hooks of its own, which give logits; change one of them alone"
            )
    if has_own_forward(model):
        logits_BTW: Tensor = model(None if model.encoder is None else batch.source_BS, batch.target_BT)
        return _real(logits_BTW, batch)
    memory = None if model.encoder is None else model.encode(batch.source_BS)
    return _real(model.logits(model.decode(batch.target_BT, memory)), batch)


def _halts(model: Transformer) -> bool:
    return any(isinstance(stack, AdaptiveEncoder | AdaptiveDecoder) for stack in (model.encoder, model.decoder))


def _check_states_suffice(model: Transformer) -> None:
    """Raise a `ConfigError` where a loss needs more than logits, and the model changes its logits."""
    if changes_logits(model):
        raise ConfigError(
            f"a {type(model).__name__} with a head, copying or adaptive steps takes its loss from its states, not from "
            "a forward or logits of its own; change its output instead"
        )


def _is_own(output: nn.Module, name: str) -> bool:
    """Whether a method of an output is of a class, or of an instance, that is not regard's."""
    owner = next((cls for cls in type(output).__mro__ if name in vars(cls)), None)
    return name in vars(output) or (owner is not None and not owner.__module__.startswith("regard."))


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
