from collections.abc import Iterator
from typing import Any, Literal

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from regard import Transformer, TransformerConfig, accelerate, label_smoothed_cross_entropy, unaccelerate
from regard.errors import ConfigError
from regard.layers import OutputProjection
from regard.model.transformer import Memory
from regard.ops.rng import keyed_dropout
from regard.training.examples import Batch
from regard.training.losses import Loss, cross_entropy, losses_of, plain_loss, r_drop
from regard.training.recipe import Training


def batch_of(labels: torch.Tensor) -> Batch:
    return Batch(labels, labels, labels, torch.arange(len(labels)), int((labels != 0).sum()))


class Recited(Transformer):
    """A model whose logits are given."""

    def __init__(self, logits: Iterator[torch.Tensor]) -> None:
        super().__init__(TransformerConfig.preset("tiny", vocab_size=5, d_model=4, d_ff=4))
        setattr(self.output, "forward", lambda states: states)  # noqa: B010
        self._logits = logits

    def encode(self, *args: object, **options: object) -> Memory:
        return Memory(torch.empty(0), torch.empty(0))

    def decode(self, *args: object, **options: object) -> torch.Tensor:
        return next(self._logits)


@pytest.mark.parametrize("output_bias", [False, True])
def test_cross_entropy_is_that_of_the_models_logits(output_bias: bool) -> None:
    config = TransformerConfig.preset("tiny", vocab_size=30, d_model=16, d_ff=16, output_bias=output_bias)
    model = Transformer(config).double().eval()
    labels = torch.randint(1, 30, (5, 6))
    labels[2, 3:] = 0
    batch = Batch(torch.randint(1, 30, (5, 4)), torch.randint(1, 30, (5, 6)), labels, torch.arange(5), 27)
    found = cross_entropy(0.1)(model, batch)
    gradients: tuple[Literal["exact", "sampled"], ...] = ("exact", "sampled")
    for softmax_gradient in gradients:
        accelerate(model, softmax_gradient=softmax_gradient)
        torch.testing.assert_close(cross_entropy(0.1)(model, batch), found)
    unaccelerate(model)
    logits = model(batch.source_BS, batch.target_BT)
    expected = label_smoothed_cross_entropy(logits, labels, smoothing=0.1, pad_id=0, reduction="sum")
    torch.testing.assert_close(found, expected)
    parameters = list(model.parameters())
    for mine, theirs in zip(
        torch.autograd.grad(found, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("rows", [3, 200])
def test_r_drop_is_its_formula(rows: int) -> None:
    """Against the same written with torch's own functions, forward and backward, across the pieces it works in."""
    W, T = 11, 4
    labels = torch.randint(1, W, (rows, T))
    labels[0, 2:] = 0
    logits = [torch.randn(rows, T, W, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    found = r_drop(5.0, 0.1)(Recited(iter(logits)), batch_of(labels))

    real = labels != 0
    one, two = (x[real] for x in logits)
    likely = [F.cross_entropy(x, labels[real], label_smoothing=0.1, reduction="sum") for x in (one, two)]
    logs = one.log_softmax(-1), two.log_softmax(-1)
    apart = F.kl_div(logs[0], logs[1], reduction="sum", log_target=True)
    apart = apart + F.kl_div(logs[1], logs[0], reduction="sum", log_target=True)
    expected = (likely[0] + likely[1]) / 2 + 5.0 / 4 * apart

    torch.testing.assert_close(found, expected)
    for mine, theirs in zip(
        torch.autograd.grad(3 * found, logits), torch.autograd.grad(3 * expected, logits), strict=True
    ):
        torch.testing.assert_close(mine, theirs)


def test_r_drop_with_a_sampled_gradient_is_the_same_loss() -> None:
    config = TransformerConfig.preset("tiny", vocab_size=30, d_model=16, d_ff=16, output_bias=True)
    model = Transformer(config).double()
    labels = torch.randint(1, 30, (5, 6))
    labels[2, 3:] = 0
    batch = Batch(torch.randint(1, 30, (5, 4)), torch.randint(1, 30, (5, 6)), labels, torch.arange(5), 27)

    def of(alpha: float) -> torch.Tensor:
        with keyed_dropout(torch.arange(5)):  # so that all drop the same
            return r_drop(alpha)(model, batch)

    exact = of(5.0)
    accelerate(model, precision="float64", softmax_gradient="sampled")
    torch.testing.assert_close(of(5.0), exact)
    assert not of(5.0).isclose(of(4.0))


def test_passes_that_agree_cost_the_cross_entropy_alone() -> None:
    logits, labels = torch.randn(2, 3, 7), torch.randint(1, 7, (2, 3))
    found = r_drop(5.0)(Recited(iter([logits, logits])), batch_of(labels))
    torch.testing.assert_close(found, label_smoothed_cross_entropy(logits, labels, pad_id=0, reduction="sum"))


def test_r_drop_is_refused_where_only_the_other_loss_is_the_outputs_own() -> None:
    class Own(OutputProjection):
        def loss(self, *args: Any, **options: Any) -> torch.Tensor:
            return 7 * super().loss(*args, **options)

    model = Transformer(TransformerConfig.preset("tiny", vocab_size=30, d_model=16, d_ff=16)).eval()
    batch = batch_of(torch.randint(1, 30, (5, 6)))
    plain = cross_entropy(0.1)(model, batch)
    model.output.__class__ = Own
    torch.testing.assert_close(cross_entropy(0.1)(model, batch), 7 * plain)
    with pytest.raises(ConfigError, match="Own has a loss of its own only"):
        r_drop(1.0)(model, batch)


@pytest.mark.parametrize("kind", ["global hook", "call"])
def test_the_loss_is_that_of_calling_the_model(kind: str) -> None:
    class Quieter(Transformer):
        def __call__(self, *args: Any, **options: Any) -> Any:
            return 0.1 * super().__call__(*args, **options)

    model = Transformer(TransformerConfig.preset("tiny", vocab_size=30, d_model=16, d_ff=16)).eval()
    batch = batch_of(torch.randint(1, 30, (5, 6)))
    handle = None
    if kind == "call":
        model.__class__ = Quieter
    else:
        handle = register_module_forward_hook(
            lambda module, inputs, outputs: 0.1 * outputs if module is model else None
        )
    try:
        found, logits = cross_entropy(0.1)(model, batch), model(batch.source_BS, batch.target_BT)
    finally:
        if handle is not None:
            handle.remove()
    torch.testing.assert_close(
        found, label_smoothed_cross_entropy(logits, batch.labels_BT, smoothing=0.1, reduction="sum")
    )


def test_the_second_pass_may_begin_later() -> None:
    one, two, labels = torch.randn(2, 3, 7), torch.randn(2, 3, 7), torch.randint(1, 7, (2, 3))
    loss_at = losses_of(Training(steps=9, r_drop=5.0, r_drop_from=4))
    both = loss_at(4)(Recited(iter([one, two])), batch_of(labels))
    torch.testing.assert_close(both, r_drop(5.0)(Recited(iter([one, two])), batch_of(labels)))
    assert loss_at(9) is loss_at(4) is not loss_at(3)
    assert loss_at(3) is loss_at(1)


@pytest.mark.parametrize("fast", [False, True])
def test_the_losses_of_a_decoder_alone_are_those_of_its_logits(fast: bool) -> None:
    """Its batches have sources of width 0."""
    config = TransformerConfig.preset("tiny", vocab_size=30, d_model=32, d_ff=32, encoder_layers=0, dropout=0.0)
    model = Transformer(config)
    target, labels = torch.randint(1, 30, (5, 6)), torch.randint(1, 30, (5, 6))
    labels[2, 3:] = target[2, 3:] = 0
    batch = Batch(torch.zeros(5, 0, dtype=torch.int64), target, labels, torch.arange(5), 27)
    expected = label_smoothed_cross_entropy(model(target), labels, smoothing=0.1, pad_id=0, reduction="sum")
    expected.backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    if fast:
        accelerate(model)
    for loss in (cross_entropy(0.1), r_drop(3.0, 0.1)):  # both passes agree: nothing is dropped
        model.zero_grad()
        found = loss(model, batch)
        torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=1e-4)
        found.backward()
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-4)


def test_the_ponder_cost_is_a_part_of_the_loss_of_a_head() -> None:
    def model_with(cost: float) -> Transformer:
        torch.manual_seed(0)
        return Transformer(
            TransformerConfig.preset(
                "tiny",
                vocab_size=30,
                d_model=16,
                d_ff=16,
                decoder_layers=0,
                dropout=0.0,
                head={"kind": "classification", "labels": 3},
                sharing={"kind": "all", "act": {"cost": cost}},
            )
        )

    source, labels = torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([[1], [2]])
    batch = Batch(source, labels[:, :0], labels, torch.arange(2), 2)
    cheap, dear = model_with(0.0), model_with(0.5)
    costs: list[torch.Tensor] = []
    dear.encode(source, costs=costs)
    expected = cross_entropy(0.1)(cheap, batch) + costs[0][source != 0].sum()
    torch.testing.assert_close(cross_entropy(0.1)(dear, batch), expected)
    torch.testing.assert_close(plain_loss(dear, batch), plain_loss(cheap, batch))


def test_r_drop_counts_the_ponder_cost_of_one_pass() -> None:
    torch.manual_seed(0)
    sharing = {"kind": "all", "act": {"cost": 0.5}}
    model = Transformer(
        TransformerConfig.preset("tiny", vocab_size=30, d_model=16, d_ff=16, dropout=0.0, sharing=sharing)
    )
    batch = batch_of(torch.randint(1, 30, (2, 4)))  # without dropout both passes agree
    torch.testing.assert_close(r_drop(3.0, 0.1)(model, batch), cross_entropy(0.1)(model, batch))


@pytest.mark.parametrize("loss", [cross_entropy(0.1), r_drop(1.0), plain_loss])
def test_a_loss_of_the_outputs_own_and_logits_of_the_models_own_are_refused(loss: Loss) -> None:
    class Focal(OutputProjection):
        def loss(self, *args: Any, **options: Any) -> torch.Tensor:
            return 7 * super().loss(*args, **options)

    model = Transformer(TransformerConfig.preset("tiny", vocab_size=30, d_model=16, d_ff=16)).eval()
    model.output.__class__ = Focal
    model.register_forward_hook(lambda module, inputs, logits: None)
    with pytest.raises(ConfigError, match="Focal has a loss of its own, .* hooks of its own"):
        loss(model, batch_of(torch.randint(1, 30, (2, 4))))


def test_the_places_of_real_labels_are_found_before_a_batch_moves() -> None:
    labels = torch.tensor([[5, 6, 0], [7, 0, 0]])
    batch = batch_of(labels)
    moved = batch.to(torch.device("meta"))
    assert batch.real_R.tolist() == [0, 1, 3]
    assert (moved.real_R.device.type, tuple(moved.real_R.shape)) == ("meta", (3,))  # meta has no values to look at


def test_an_output_without_a_loss_is_trained_by_the_logits_of_the_models_own() -> None:
    model = Transformer(TransformerConfig.preset("tiny", vocab_size=30, d_model=16, d_ff=16)).eval()
    model.output = nn.Linear(16, 30)
    model.register_forward_hook(lambda module, inputs, logits: 0.5 * logits)
    batch = batch_of(torch.randint(1, 30, (2, 4)))
    logits = model(batch.source_BS, batch.target_BT)
    expected = label_smoothed_cross_entropy(logits, batch.labels_BT, smoothing=0.1, reduction="sum")
    torch.testing.assert_close(cross_entropy(0.1)(model, batch), expected)
