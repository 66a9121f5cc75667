"""Which modules are known to compute what their class says."""

import os
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from regard import MultiHeadAttention, Transformer, TransformerConfig, accelerate
from regard.acceleration.known import REFERENCES, is_sharded, reference_type, unknown_module
from regard.acceleration.snapshot import Snapshot
from regard.layers import Decoder, FeedForward, OutputProjection, Residual
from tests.unit.acceleration.problems import needs_kernels


def small_model() -> Transformer:
    return Transformer(TransformerConfig.preset("tiny", vocab_size=20, d_model=16, d_ff=16, encoder_layers=1))


class Changed(MultiHeadAttention):
    """A subclass of a known class."""


class Doubled(nn.Module):
    """A parametrization."""

    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def test_every_module_of_every_kind_of_model_is_known() -> None:
    for changes in (
        {},
        {"norm": "rms", "positions": "learned", "activation": "swiglu"},
        {"positions": "none", "embedding_norm": True, "shared_embeddings": "none"},
        {"encoder_layers": 0},
        {"decoder_layers": 0},
    ):
        model = Transformer(TransformerConfig.preset("tiny", vocab_size=20, **changes))
        for name, module in model.named_modules():
            assert reference_type(module) is type(module), name
        assert unknown_module(model) is None


def test_our_replacements_stand_for_the_class_that_they_replace() -> None:
    assert REFERENCES
    for settings in ({}, {"precision": "int8"}, {"precision": "int8", "softmax_gradient": "sampled"}):
        model = small_model()
        classes = {name: type(module) for name, module in model.named_modules()}
        report = accelerate(model, **settings)  # type: ignore[arg-type]
        assert report.replaced
        for name, module in model.named_modules():
            assert reference_type(module) is classes[name], name
        assert unknown_module(model) is None


def test_a_subclass_is_not_known() -> None:
    model = small_model()
    assert reference_type(Changed(8, 2)) is None
    assert reference_type(nn.Identity()) is None
    assert model.decoder is not None
    model.decoder.layers[1].self_attention = Changed(16, 4)
    assert unknown_module(model) == f"decoder.layers.1.self_attention is a {__name__}.Changed"
    subclass = type("Subclass", (Transformer,), {"__module__": "elsewhere"})
    assert unknown_module(subclass(model.config)) == "the model is a elsewhere.Subclass"


def test_a_subclass_of_a_replacement_is_not_known() -> None:
    for replacement in REFERENCES:
        module = nn.Module()
        module.__class__ = type("Subclass", (replacement,), {})
        assert reference_type(module) is None


@pytest.mark.parametrize("name", ["forward", "heads", "attend", "project_key_value", "start_cache", "__call__"])
def test_a_method_of_the_instances_own_is_seen(name: str) -> None:
    layer = MultiHeadAttention(8, 2)
    before = Snapshot(layer)
    object.__setattr__(layer, name, lambda *args, **kwargs: None)
    assert reference_type(layer) is None
    assert not before.is_current()
    assert unknown_module(layer) == f"the model has a {name} of its own"
    vars(layer).pop(name)
    assert reference_type(layer) is MultiHeadAttention
    assert before.is_current()


@pytest.mark.parametrize("name", ["encode", "decode", "logits", "forward"])
def test_a_method_of_a_models_own_is_seen(name: str) -> None:
    model = small_model()
    setattr(model, name, getattr(model, name))
    assert unknown_module(model) == f"the model has a {name} of its own"


HOOKS = {
    "forward hook": lambda module: module.register_forward_hook(lambda *_: None),
    "forward pre-hook": lambda module: module.register_forward_pre_hook(lambda *_: None),
    "hook with keywords": lambda module: module.register_forward_hook(lambda *_: None, with_kwargs=True),
    "backward hook": lambda module: module.register_full_backward_hook(lambda *_: None),
    "backward pre-hook": lambda module: module.register_full_backward_pre_hook(lambda *_: None),
}
GLOBAL_HOOKS = {
    "forward": nn.modules.module.register_module_forward_hook,
    "forward pre": nn.modules.module.register_module_forward_pre_hook,
    "backward": nn.modules.module.register_module_full_backward_hook,
}


@pytest.mark.parametrize("register", HOOKS.values(), ids=HOOKS)
@pytest.mark.parametrize("accelerated", [False, True])
def test_hooks_are_seen(register, accelerated: bool) -> None:  # type: ignore[no-untyped-def]
    model = small_model()
    if accelerated:
        accelerate(model)
    layer = model.get_submodule("decoder.layers.0.feed_forward")
    before = Snapshot(model)
    handle = register(layer)
    assert reference_type(layer) is None
    assert unknown_module(model) == "decoder.layers.0.feed_forward has hooks"
    assert not before.is_current()
    handle.remove()
    assert reference_type(layer) is FeedForward
    assert unknown_module(model) is None
    assert before.is_current()


@pytest.mark.parametrize("register", GLOBAL_HOOKS.values(), ids=GLOBAL_HOOKS)
def test_global_hooks_are_seen(register) -> None:  # type: ignore[no-untyped-def]
    layer = nn.Linear(2, 3)
    before = Snapshot(layer)
    handle = register(lambda *_: None)
    try:
        assert reference_type(layer) is None
        assert not before.is_current()
    finally:
        handle.remove()
    assert reference_type(layer) is nn.Linear


def test_parametrizations_are_seen() -> None:
    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Doubled())
    assert reference_type(layer) is None
    assert reference_type(parametrizations.weight_norm(nn.Linear(3, 3))) is None
    output = OutputProjection(5, 3)
    accelerate(output)
    parametrize.register_parametrization(output, "weight", Doubled())
    assert reference_type(output) is None
    states, labels = torch.randn(2, 3), torch.tensor([1, 4])
    logits = 2 * states @ output.parametrizations.weight.original.T  # type: ignore[union-attr, operator]
    torch.testing.assert_close(
        output.loss(states, labels), nn.functional.cross_entropy(logits, labels, reduction="sum")
    )


def test_state_dict_hooks_change_no_function() -> None:
    layer = nn.Linear(2, 3)
    layer.register_state_dict_post_hook(lambda *_: None)
    assert reference_type(layer) is nn.Linear


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "0"), ("RANK", "0"), ("WORLD_SIZE", "1")):
        monkeypatch.setitem(os.environ, name, value)
    store = torch.distributed.HashStore()  # type: ignore[attr-defined]
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("accelerated", [False, True])
def test_it_sees_through_fsdps_wrapper(accelerated: bool) -> None:
    from torch.distributed.fsdp import fully_shard

    model = small_model()
    if accelerated:
        accelerate(model)
    assert model.decoder is not None
    for layer in model.decoder.layers:
        fully_shard(layer.self_attention)  # type: ignore[arg-type]
        fully_shard(layer)
    fully_shard(model)
    attention = model.get_submodule("decoder.layers.0.self_attention")
    assert is_sharded(attention)
    assert type(attention) not in (MultiHeadAttention, *REFERENCES)
    assert reference_type(attention) is MultiHeadAttention
    assert reference_type(model.decoder) is Decoder
    assert unknown_module(model) is None
    x = torch.randint(1, 20, (2, 3))
    model(x, x).sum().backward()  # after which FSDP has set up what it does lazily
    assert unknown_module(model) is None
    handle = attention.register_forward_hook(lambda *_: None)
    assert unknown_module(model) == "decoder.layers.0.self_attention has hooks"
    handle.remove()
    sharded = Changed(8, 2)
    fully_shard(sharded)
    assert reference_type(sharded) is None
    assert unknown_module(sharded) == f"the model is a {__name__}.Changed"


@needs_kernels
@pytest.mark.usefixtures("one_process")
def test_what_is_sharded_already_is_left() -> None:
    from torch.distributed.fsdp import fully_shard

    model = small_model()
    attention = model.get_submodule("decoder.layers.0.self_attention")
    fully_shard(attention)
    sharded_type = type(attention)
    report = accelerate(model)
    assert type(attention) is sharded_type
    assert report.left == {"decoder.layers.0.self_attention": "is sharded already: accelerate comes before fully_shard"}
    residual = model.get_submodule("decoder.layers.0.self_attention_residual")
    assert reference_type(residual) is Residual
