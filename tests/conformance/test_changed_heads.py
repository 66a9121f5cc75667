"""A changed head, or a changed encoder below one, changes the model's logits and its loss alike, accelerated or not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import Transformer, TransformerConfig, accelerate, unaccelerate
from regard.kernels.bindings import kernels
from regard.layers import ClassificationHead, FeedForward, MultiHeadAttention, SpanHead

Change = Callable[[Transformer], None]
KINDS: list[dict[str, Any]] = [{"kind": "classification", "labels": 5}, {"kind": "span"}]


def _scaled(output: Tensor) -> Tensor:
    return output * torch.linspace(0.3, 1.2, output.size(-1))


class SmallerLabels(ClassificationHead):
    """A head whose logits are other ones."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return _scaled(super().forward(*args, **kwargs))


class LastPooled(ClassificationHead):
    """A head that pools in a way of its own."""

    def pool(self, states_BSD: Tensor, mask: Tensor | None = None) -> Tensor:
        return states_BSD.amax(1)


class SmallerSpans(SpanHead):
    """A head whose logits are other ones."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return _scaled(super().forward(*args, **kwargs))


def _subclass(model: Transformer) -> None:
    model.output.__class__ = SmallerLabels if isinstance(model.output, ClassificationHead) else SmallerSpans


def _pooling(model: Transformer) -> None:
    if isinstance(model.output, ClassificationHead):
        model.output.__class__ = LastPooled
    else:
        _subclass(model)


def _hook_on(base: type[nn.Module]) -> Change:
    def apply(model: Transformer) -> None:
        module = [part for part in model.modules() if isinstance(part, base)][-1]
        module.register_forward_hook(lambda module, inputs, output: _scaled(output))

    return apply


def _hook_on_head(model: Transformer) -> None:
    model.output.register_forward_hook(lambda module, inputs, output: _scaled(output))


def _instance_forward(model: Transformer) -> None:
    plain = model.output.forward
    model.output.forward = lambda *args, **kwargs: _scaled(plain(*args, **kwargs))


def _own_head(model: Transformer) -> None:
    class Mine(nn.Module):
        def __init__(self, head: Any) -> None:
            super().__init__()
            self.head = head

        def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
            return _scaled(self.head(states, mask))

        def loss(self, states: Tensor, labels: Tensor, mask: Tensor | None = None, **options: Any) -> Tensor:
            logits = self(states, mask)
            return nn.functional.cross_entropy(logits, labels, reduction="sum")

    model.output = Mine(model.output)


CHANGES: dict[str, Change] = {
    "subclass of the head": _subclass,
    "subclass that pools": _pooling,
    "hook on the head": _hook_on_head,
    "hook on its linear layer": _hook_on(nn.Linear),
    "a forward of the head's own": _instance_forward,
    "hook on attention": _hook_on(MultiHeadAttention),
    "hook on the feed-forward": _hook_on(FeedForward),
    "a module of one's own": _own_head,
}


def model_for(kind: dict[str, Any], change: Change | None = None) -> Transformer:
    config = TransformerConfig(
        vocab_size=50, d_model=32, num_heads=4, d_ff=64, encoder_layers=2, decoder_layers=0, dropout=0.0, head=kind
    )
    torch.manual_seed(3)
    model = Transformer(config)
    if change is not None:
        change(model)
    return model


def loss_of(model: Transformer, source: Tensor) -> float:
    memory = model.encode(source)
    classifies = isinstance(model.output, ClassificationHead) or model(source).dim() == 2
    labels = torch.tensor([1, 4]) if classifies else torch.tensor([[1, 3], [0, 1]])
    return float(model.output.loss(memory.states_BSD, labels, memory.mask, smoothing=0.1).detach())


SOURCE = torch.tensor([[7, 8, 9, 10, 11], [12, 13, 0, 0, 0]])


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("name", CHANGES)
def test_the_logits_and_the_loss_change_alike_accelerated_or_not(kind: dict[str, Any], name: str) -> None:
    if name == "a module of one's own" and kind["kind"] == "span":
        pytest.skip("its loss is for labels")
    change = CHANGES[name]
    plain, changed = model_for(kind), model_for(kind, change)
    before, after = plain(SOURCE), changed(SOURCE)
    real = before != -torch.inf
    assert (before - after)[real].abs().max() > 1e-3
    assert abs(loss_of(plain, SOURCE) - loss_of(changed, SOURCE)) > 1e-4
    for order in ("change, then accelerate", "accelerate, then change"):
        model = model_for(kind)
        if order.startswith("change"):
            change(model)
        accelerate(model)
        if order.startswith("accelerate"):
            change(model)
        torch.testing.assert_close(model(SOURCE)[real], after[real], rtol=1e-4, atol=1e-4)
        assert loss_of(model, SOURCE) == pytest.approx(loss_of(changed, SOURCE), abs=1e-3)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_the_encoder_is_accelerated_and_the_head_is_left_plain(kind: dict[str, Any], precision: Any) -> None:
    model = model_for(kind).train()
    expected = loss_of(model, SOURCE)
    classes = [type(part) for part in model.output.modules()]
    report = accelerate(model, precision=precision)
    assert report.left["output"].startswith("is a head")
    assert report.replaced or kernels() is None
    assert not any(name.startswith("output") for names in report.replaced.values() for name in names)
    assert [type(part) for part in model.output.modules()] == classes
    assert loss_of(model, SOURCE) == pytest.approx(expected, rel=1e-4 if precision == "float32" else 0.1)
    unaccelerate(model)
    assert loss_of(model, SOURCE) == pytest.approx(expected, rel=1e-6)
