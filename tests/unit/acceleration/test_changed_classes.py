"""A class or a function that was given another body after it was imported is not what kernels stand for."""

import importlib
from collections.abc import Callable
from timeit import repeat
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import Transformer, TransformerConfig, accelerate, unaccelerate
from regard.acceleration.changed_classes import changed_classes
from regard.acceleration.known import reference_type, unknown_module
from regard.acceleration.known_classes import KERNEL_PARTS
from regard.acceleration.snapshot import Snapshot
from regard.layers import Dropout, FeedForward, LayerNorm, MultiHeadAttention, OutputProjection, SharedLayers
from regard.layers.patterns import SlidingWindow
from regard.layers.positions import ALiBi, RelativePositions, RotaryPositions, T5Bias
from regard.layers.softmax_attention import SoftmaxAttention
from regard.ops.masks import Causal
from tests.unit.acceleration.problems import needs_kernels

PATCHED_CLASSES: list[tuple[type[nn.Module], type[nn.Module], str]] = [
    (LayerNorm, LayerNorm, "forward"),
    (Dropout, Dropout, "forward"),
    (nn.Linear, nn.Linear, "forward"),
    (FeedForward, FeedForward, "__call__"),  # which it inherits until it is given one
    (ALiBi, ALiBi, "bias"),
    (ALiBi, ALiBi, "adds_bias"),
    (T5Bias, RelativePositions, "rotate"),
    (RotaryPositions, RotaryPositions, "rotate"),
    (SlidingWindow, SlidingWindow, "allowed"),
]
PATCHED_FUNCTIONS = [
    ("regard.layers.attention", "attention"),
    ("regard.layers.norms", "layer_norm"),
    ("regard.layers.embeddings", "label_smoothed_cross_entropy"),
    ("regard.layers.feed_forward", "activate"),
    ("regard.ops.attention", "masked_softmax"),
]


def small_model(**changes: Any) -> Transformer:
    fields = {"d_model": 16, "d_ff": 16, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
    return Transformer(TransformerConfig(vocab_size=20, **fields | changes))


def module_of(cls: type[nn.Module]) -> nn.Module:
    module = nn.Module()
    module.__class__ = cls
    return module


@pytest.mark.parametrize(("known", "owner", "name"), PATCHED_CLASSES)
def test_a_changed_class_is_not_known(
    known: type[nn.Module], owner: type[nn.Module], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, before = module_of(known), Snapshot(nn.Identity())
    assert reference_type(module, KERNEL_PARTS) is known
    monkeypatch.setattr(owner, name, lambda *args: args, raising=False)
    assert reference_type(module, KERNEL_PARTS) is None
    assert unknown_module(module, KERNEL_PARTS) == f"the model is a {known.__name__}, a class that was changed"
    assert reference_type(module_of(OutputProjection)) is OutputProjection
    assert not before.is_current()
    monkeypatch.undo()
    assert reference_type(module, KERNEL_PARTS) is known
    assert changed_classes() == set()
    assert before.is_current()


@pytest.mark.parametrize(("module", "name"), PATCHED_FUNCTIONS)
def test_nothing_is_known_where_a_function_was_replaced(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace, model = importlib.import_module(module), small_model()
    before = Snapshot(model)
    plain = getattr(namespace, name)
    monkeypatch.setattr(namespace, name, lambda *args, **kwargs: plain(*args, **kwargs))
    assert reference_type(nn.Linear(2, 2)) is None
    assert unknown_module(model) == f"the model uses {module}.{name}, which was replaced"
    assert not before.is_current()
    report = accelerate(model)
    assert not report.replaced
    assert report.left["output"] == f"uses {module}.{name}, which was replaced"
    monkeypatch.undo()
    assert unknown_module(model) is None
    assert before.is_current()


@pytest.mark.parametrize(("cls", "name"), [(nn.Module, "__call__"), (SoftmaxAttention, "dense"), (Causal, "dense")])
def test_nothing_is_known_where_a_class_that_all_use_was_changed(
    cls: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain: Callable[..., Any] = getattr(cls, name)
    monkeypatch.setattr(cls, name, lambda *args, **kwargs: plain(*args, **kwargs))
    told = f"the model uses {cls.__module__}.{cls.__name__}.{name}, which was replaced"
    assert unknown_module(nn.Linear(2, 2)) == told
    monkeypatch.undo()
    assert unknown_module(nn.Linear(2, 2)) is None


def test_another_activation_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = importlib.import_module("regard.ops.feed_forward")._FUNCTIONS
    monkeypatch.setitem(functions, "relu", torch.square)
    told = "the model uses regard.ops.feed_forward._FUNCTIONS.relu, which was replaced"
    assert unknown_module(nn.Linear(2, 2)) == told
    monkeypatch.undo()
    assert unknown_module(nn.Linear(2, 2)) is None


@needs_kernels
@pytest.mark.parametrize("cls", [LayerNorm, Dropout])
@pytest.mark.parametrize("accelerated", ["before", "after"])
def test_a_fused_residual_computes_with_the_changed_class(
    cls: type[nn.Module], accelerated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model, tokens = small_model().train(), torch.randint(1, 20, (2, 3))
    unchanged = model(tokens, tokens)
    if accelerated == "before":
        accelerate(model)
    plain: Callable[..., Tensor] = cls.forward
    monkeypatch.setattr(cls, "forward", lambda self, x: plain(self, x) * torch.linspace(0.3, 1.2, x.size(-1)))
    if accelerated == "after":
        accelerate(model)
    found = model(tokens, tokens)
    expected = small_model().train()
    expected.load_state_dict(model.state_dict())
    torch.testing.assert_close(found, expected(tokens, tokens), rtol=1e-4, atol=1e-5)
    assert (found - unchanged).abs().max() > 1e-2


@needs_kernels
def test_a_learned_scale_is_known_to_no_kernel() -> None:
    layer = MultiHeadAttention(16, 2)
    layer.scale = 0.3
    assert reference_type(layer, KERNEL_PARTS) is MultiHeadAttention
    for scale in (layer.d_k**-0.5, 0.3):
        layer.scale = nn.Parameter(torch.tensor(scale))
        assert reference_type(layer, KERNEL_PARTS) is None
        assert unknown_module(layer, KERNEL_PARTS) == "the model varies attention (scale)"
        assert not accelerate(nn.ModuleList([layer])).replaced.get("KernelAttention")


def test_a_snapshot_sees_another_shared_layer() -> None:
    shared = SharedLayers([first := nn.Linear(2, 2), nn.Linear(2, 2), first])
    before = Snapshot(shared)
    shared[0] = nn.Linear(2, 2)
    assert not before.is_current()


def test_looking_for_changes_costs_little() -> None:
    changed_classes()
    assert min(repeat(changed_classes, number=100, repeat=20)) / 100 < 200e-6  # 20 µs where nothing else runs


@needs_kernels
@pytest.mark.parametrize(("module", "name"), PATCHED_FUNCTIONS[:2])
def test_a_function_that_is_replaced_after_accelerate_is_called(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model, tokens = small_model().train(), torch.randint(1, 20, (2, 3))
    accelerate(model)
    namespace = importlib.import_module(module)
    plain: Callable[..., Tensor] = getattr(namespace, name)
    monkeypatch.setattr(namespace, name, lambda *args, **options: 0.5 * plain(*args, **options))
    found = model(tokens, tokens)
    unaccelerate(model)
    torch.testing.assert_close(found, model(tokens, tokens), rtol=1e-4, atol=1e-5)
    monkeypatch.undo()
    assert (found - model(tokens, tokens)).abs().max() > 1e-2
