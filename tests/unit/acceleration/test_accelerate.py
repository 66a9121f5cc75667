"""Modules are replaced in place: the object, its parameters, hooks and ties stay, and what it computes."""

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard import InputError, Transformer, TransformerConfig, accelerate, label_smoothed_cross_entropy, unaccelerate
from regard.acceleration.accelerate import Precision, Report
from regard.acceleration.known import REFERENCES
from regard.layers import Dropout, MultiHeadAttention, OutputProjection, Residual
from regard.ops.rng import keyed_dropout
from tests.strategies import VOCAB, configs, model_of, tokens
from tests.unit.acceleration.problems import needs_kernels


def small_model(**changes: Any) -> Transformer:
    fields = dict(d_model=32, d_ff=48, num_heads=4, encoder_layers=1, decoder_layers=1, **changes)
    return Transformer(TransformerConfig(vocab_size=VOCAB, **fields))


def classes(model: nn.Module) -> dict[str, type]:
    return {name: type(module) for name, module in model.named_modules()}


def batch(config: TransformerConfig) -> tuple[Tensor, ...]:
    source, target = tokens(2, 6, config.source_size), tokens(2, 5, VOCAB)
    source[1, 4:] = 0
    return (source, target) if config.kind == "encoder-decoder" else (target,)


class Scaled(Residual):
    """A layer that is not ours."""

    def forward(self, x_BTD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return 3 * super().forward(x_BTD, sublayer)


@needs_kernels
def test_known_modules_are_replaced_and_reported() -> None:
    model = small_model()
    plain = classes(model)
    report = accelerate(model)
    expected = {
        MultiHeadAttention: "KernelAttention",
        Residual: "FusedResidual",
        nn.Linear: "SgemmLinear",
        OutputProjection: "FusedOutputProjection",
    }
    for name, module in model.named_modules():
        assert type(module).__name__ == expected.get(plain[name], plain[name].__name__), name
        assert isinstance(module, plain[name])
    replaced = {new: {name for name, cls in plain.items() if cls is old} for old, new in expected.items()}
    assert {new: set(names) for new, names in report.replaced.items()} == replaced
    assert report.left == {}
    assert "3 KernelAttention" in str(report)
    unaccelerate(model)
    assert classes(model) == plain


@pytest.mark.parametrize("precision", ["float64", "float32", "bfloat16", "int8"])
@pytest.mark.parametrize("gradient", ["exact", "sampled"])
def test_it_may_be_done_again_for_another_precision(precision: Precision, gradient: Any) -> None:
    once, again = small_model(), small_model()
    accelerate(once, precision=precision, softmax_gradient=gradient)
    accelerate(again, precision="int8", softmax_gradient="sampled")
    accelerate(again)
    accelerate(again, precision=precision, softmax_gradient=gradient)
    assert classes(again) == classes(once)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_objects_parameters_hooks_and_ties_stay(precision: Precision) -> None:
    model = small_model()
    called: list[str] = []
    hooked = model.get_submodule("decoder.layers.0.self_attention.key")
    hooked.register_forward_hook(lambda *_: called.append("key"))
    modules, parameters, state = list(model.modules()), list(model.parameters()), model.state_dict()
    hooks = [module._forward_hooks for module in modules]
    for change in (lambda: accelerate(model, precision=precision), lambda: unaccelerate(model)):
        change()
        assert all(one is other for one, other in zip(model.modules(), modules, strict=True))
        assert all(one is other for one, other in zip(model.parameters(), parameters, strict=True))
        assert all(module._forward_hooks is some for module, some in zip(modules, hooks, strict=True))
        assert list(model.state_dict()) == list(state)
        assert model.source_embedding is not None
        assert model.target_embedding is not None
        assert model.output.weight is model.source_embedding.tokens.weight is model.target_embedding.tokens.weight
        model(*batch(model.config))
        assert called.pop() == "key"


@needs_kernels
def test_what_is_not_known_is_left_and_reported() -> None:
    model = small_model()
    assert model.encoder is not None
    scaled = model.get_submodule("encoder.layers.0.feed_forward_residual")
    scaled.__class__ = Scaled
    hooked = model.get_submodule("decoder.layers.0.cross_attention")
    hooked.register_forward_hook(lambda module, inputs, output: 2 * output)
    changed = model.get_submodule("decoder.layers.0.feed_forward.expand")
    changed.forward = lambda x: torch.zeros(*x.shape[:-1], 48)
    model.dropout = nn.Dropout(0.1)  # for which there is no replacement
    expected = model.eval()(*(inputs := batch(model.config)))
    report = accelerate(model)
    torch.testing.assert_close(model(*inputs), expected, rtol=1e-5, atol=1e-5)
    assert [type(module) for module in (scaled, hooked, changed)] == [Scaled, MultiHeadAttention, nn.Linear]
    assert type(model.dropout) is nn.Dropout
    left = dict(report.left)
    assert left.pop("encoder.layers.0.feed_forward_residual") == f"is a {__name__}.Scaled"
    assert left.pop("decoder.layers.0.cross_attention") == "has hooks"
    assert left.pop("decoder.layers.0.feed_forward.expand") == "has a forward of its own"
    assert not left
    assert "left: " in str(report)
    assert "decoder.layers.0.cross_attention has hooks" in str(report)


def test_a_model_with_global_hooks_is_left_whole() -> None:
    model, plain = small_model(), classes(small_model())
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        report = accelerate(model)
    finally:
        handle.remove()
    assert classes(model) == plain
    assert not report.replaced
    assert set(report.left.values()) == {"has hooks"}


def test_an_empty_report_says_so() -> None:
    assert str(Report()) == "replaced nothing"
    assert str(accelerate(nn.Identity())) == "replaced nothing"


def test_a_wrong_gradient_is_told() -> None:
    with pytest.raises(InputError, match="softmax_gradient is 'drawn'; it is exact or sampled"):
        accelerate(small_model(), softmax_gradient="drawn")  # type: ignore[arg-type]


def run(model: Transformer, *, with_loss: bool) -> tuple[Tensor, ...]:
    """Return the logits, the loss and the gradients of a model, always from the same dropout keys."""
    torch.manual_seed(1)
    inputs = batch(model.config)
    with keyed_dropout(torch.arange(2)):
        if model.config.kind == "encoder-decoder":
            states = model.decode(inputs[1], model.encode(inputs[0]))
        else:
            states = model.encode(inputs[0]).states_BSD if model.decoder is None else model.decode(inputs[0])
    labels = torch.arange(10).view(2, 5)
    logits = model.logits(states)
    loss = label_smoothed_cross_entropy(logits, labels, reduction="sum")
    if with_loss:
        loss = model.output.loss(states, labels, smoothing=0.1)
    return logits, loss, *torch.autograd.grad(loss, list(model.parameters()))


@settings(max_examples=60)
@given(configs(), st.booleans(), st.booleans(), st.booleans())
def test_outputs_and_gradients_stay(config: TransformerConfig, wide: bool, training: bool, with_loss: bool) -> None:
    """In widths that the kernels take, and in others."""
    # Without an ε, rows that are all but constant make much of what float32 rounds away.
    sizes = dict(d_model=32, d_k=8, d_v=16, d_ff=24) if wide else {}
    config = config.model_copy(update={**sizes, "norm_eps": 1e-5, "attention_dropout": 0.0})
    torch.manual_seed(0)
    model = Transformer(config).train(training)
    expected = run(model, with_loss=with_loss)
    accelerate(model)
    for found, right in zip(run(model, with_loss=with_loss), expected, strict=True):
        assert (found - right).abs().max() <= 1e-5 * max(1.0, float(right.detach().abs().max()))


@settings(max_examples=20)
@given(configs())
def test_in_evaluation_int8_changes_nothing_and_in_training_little(config: TransformerConfig) -> None:
    config = config.model_copy(update={"norm_eps": 1e-5, "d_model": 32, "d_k": 8, "d_v": 8, "d_ff": 32})
    torch.manual_seed(0)
    model = Transformer(config).eval()
    inputs = batch(config)
    expected = model(*inputs)
    accelerate(model, precision="int8")
    torch.testing.assert_close(model(*inputs), expected, rtol=1e-5, atol=1e-5)
    for module in model.modules():
        if isinstance(module, Dropout | MultiHeadAttention):
            setattr(module, "rate" if isinstance(module, Dropout) else "dropout", 0.0)
    rounded = model.train()(*inputs)
    assert 0.0 < float((rounded - expected).norm() / expected.norm()) < 0.2


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_copy_and_a_pickle_are_accelerated_too(precision: Precision) -> None:
    model = small_model()
    accelerate(model, precision=precision)
    model.eval()
    expected = model(*(inputs := batch(model.config)))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), saved_and_loaded(model)):
        assert classes(other) == classes(model)
        assert other.output.weight is other.get_parameter("source_embedding.tokens.weight")
        assert other.output.weight is not model.output.weight
        assert other(*inputs).equal(expected)
        unaccelerate(other)
        assert not any(cls in REFERENCES for cls in classes(other).values())
    assert any(cls in REFERENCES for cls in classes(model).values())


def saved_and_loaded(model: Transformer) -> Transformer:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded: Transformer = torch.load(file, weights_only=False)
    return loaded


def test_states_go_from_plain_to_accelerated_and_back() -> None:
    plain, fast = small_model(), small_model()
    accelerate(fast, precision="int8")
    for source, target in ((plain, fast), (fast, plain)):
        with torch.no_grad():
            for parameter in source.parameters():
                parameter.normal_()
        assert target.load_state_dict(source.state_dict()) == ([], [])
        inputs = batch(plain.config)
        torch.testing.assert_close(target.eval()(*inputs), source.eval()(*inputs), rtol=1e-5, atol=1e-4)


def test_an_accelerated_model_is_saved_as_a_plain_one(tmp_path: Path) -> None:
    model = small_model().eval()
    accelerate(model)
    model.save(tmp_path / "model")
    loaded = Transformer.load(tmp_path / "model")
    assert not any(cls in REFERENCES for cls in classes(loaded).values())
    inputs = batch(model.config)
    torch.testing.assert_close(loaded(*inputs), model(*inputs), rtol=1e-5, atol=1e-5)


@contextmanager
def hook(module: nn.Module) -> Iterator[None]:
    handle = module.register_forward_hook(lambda module, inputs, output: output.sin())
    try:
        yield
    finally:
        handle.remove()


@pytest.mark.parametrize(
    "name",
    [
        "source_embedding",
        "encoder",
        "encoder.layers.0",
        "encoder.layers.0.self_attention",
        "encoder.layers.0.self_attention.query",
        "encoder.layers.0.self_attention_residual",
        "encoder.layers.0.self_attention_residual.norm",
        "encoder.layers.0.self_attention_residual.dropout",
        "decoder.layers.0.cross_attention",
        "decoder.layers.0.cross_attention.output",
        "decoder.layers.0.feed_forward",
        "decoder.layers.0.feed_forward.expand",
        "decoder.layers.0.feed_forward.dropout",
        "decoder.layers.0.feed_forward.contract",
        "output",
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_a_hook_after_acceleration_changes_an_accelerated_model_as_a_plain_one(name: str, training: bool) -> None:
    model = small_model(dropout=0.0).train(training)
    with hook(model.get_submodule(name)):
        expected = run(model, with_loss=True)
    assert not expected[0].allclose(run(model, with_loss=True)[0], atol=1e-3)
    accelerate(model)
    with hook(model.get_submodule(name)):
        for found, right in zip(run(model, with_loss=True), expected, strict=True):
            assert (found - right).abs().max() <= 1e-5 * max(1.0, float(right.detach().abs().max()))


def test_an_accelerated_model_is_transformed_and_compiled_as_a_plain_one() -> None:
    model, inputs = small_model(dropout=0.0), batch(small_model().config)
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        logits: Tensor = torch.func.functional_call(model, parameters, inputs)
        return logits.square().mean()

    expected, logits = torch.func.grad(loss)(parameters), model(*inputs)
    tangents = {name: torch.ones_like(parameter) for name, parameter in parameters.items()}
    along = torch.func.jvp(loss, (parameters,), (tangents,))[1]
    accelerate(model, precision="int8")
    torch.testing.assert_close(torch.func.grad(loss)(parameters), expected)
    torch.testing.assert_close(torch.func.jvp(loss, (parameters,), (tangents,))[1], along)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(*inputs), logits, rtol=1e-5, atol=1e-5)


def test_cached_decoding_of_an_accelerated_model() -> None:
    model = model_of(small_model().config, dtype=torch.float32)
    source, target = tokens(2, 6, VOCAB), tokens(2, 5, VOCAB)
    expected = model(source, target)
    accelerate(model)
    cache = model.start_cache(model.encode(source))
    steps = [model.logits(model.decode(target[:, t : t + 1], cache=cache)) for t in range(5)]
    torch.testing.assert_close(torch.cat(steps, 1), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("precision", ["INT8", "half", None])
def test_a_wrong_precision_is_told(precision: Any) -> None:
    with pytest.raises(InputError, match="it is one of float64, float32, bfloat16, float16, int8"):
        accelerate(nn.Linear(2, 2), precision=precision)


@needs_kernels
@pytest.mark.parametrize(
    ("precision", "cls", "method"),
    [
        ("float32", nn.Linear, "forward"),
        ("int8", nn.Linear, "forward"),  # which rounds nothing then
        ("float32", MultiHeadAttention, "heads"),
        ("float32", Residual, "forward"),
    ],
)
def test_a_class_that_is_patched_after_acceleration_changes_training(
    monkeypatch: pytest.MonkeyPatch, precision: Precision, cls: type[nn.Module], method: str
) -> None:
    torch.manual_seed(0)
    model = Transformer(TransformerConfig.preset("tiny", vocab_size=99, dropout=0.0))
    accelerate(model, precision=precision)
    original = getattr(cls, method)

    def doubled(*arguments: Any, **options: Any) -> Any:
        found = original(*arguments, **options)
        return (2 * found[0], found[1]) if isinstance(found, tuple) else 2 * found

    source, target = torch.randint(4, 99, (2, 9)), torch.randint(4, 99, (2, 7))
    monkeypatch.setattr(cls, method, doubled)
    found = model(source, target)
    unaccelerate(model)
    torch.testing.assert_close(found, model(source, target), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("softmax_gradient", ["exact", "sampled"])
@pytest.mark.parametrize("fields", [{}, {"sharing": {"embedding_width": 8}}])
def test_labels_that_do_not_fit_are_refused_as_by_the_plain_loss(softmax_gradient: Any, fields: Any) -> None:
    model = Transformer(TransformerConfig.preset("tiny", vocab_size=30, d_model=16, d_ff=16, **fields))
    states, labels = torch.randn(2, 3, 16), torch.randint(30, (2, 3))
    for accelerated in (False, True):
        if accelerated:
            accelerate(model, softmax_gradient=softmax_gradient)
        for wrong in (labels.T, labels.float(), labels > 3, labels[:, :2]):
            with pytest.raises(InputError):
                model.output.loss(states, wrong)
        with pytest.raises(InputError):
            model.output.r_drop_loss(states, states.transpose(0, 1), labels)
        assert model.output.loss(states[0, 0], labels[0, 0]).shape == ()


def test_a_sampled_loss_is_the_plain_one_where_no_gradient_is_wanted() -> None:
    """Exactly, in int8 too, and without taking random numbers from what comes after it."""
    torch.manual_seed(0)
    model = Transformer(TransformerConfig.preset("tiny", vocab_size=30, d_model=16, d_ff=16)).eval()
    states, labels = torch.randn(40, 16), torch.randint(30, (40,))
    with torch.no_grad():
        expected = model.output.loss(states, labels)
        accelerate(model, precision="int8", softmax_gradient="sampled")
        before = torch.get_rng_state()
        assert model.output.loss(states, labels).equal(expected)
        assert torch.get_rng_state().equal(before)
    torch.testing.assert_close(model.output.loss(states, labels), expected, rtol=1e-5, atol=1e-4)
