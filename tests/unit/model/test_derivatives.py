"""Forward-mode and higher derivatives, vmap and double backward through the plain model."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import regard
from regard import Transformer, TransformerConfig
from regard.ops import KeyLengths
from tests.strategies import VOCAB, model_of, tokens

LENGTHS = KeyLengths(torch.tensor([2, 5]))
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"causal": True},
    "masked": {"mask": LENGTHS},
    "causal and masked": {"causal": True, "mask": LENGTHS},
    "nothing attended to": {"mask": torch.tensor([True, False, True, True, True])[:, None].expand(5, 5)},
    "biased": {"bias": torch.linspace(-1, 1, 25, dtype=torch.float64).view(5, 5)},
    "with weights": {"return_weights": True},
}
any_options = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
SHAPES = {"alike": ((2, 2, 5, 3),) * 3, "grouped, of two widths": ((2, 4, 5, 3), (2, 2, 5, 3), (2, 2, 5, 4))}
any_shapes = pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)


def leaves(shapes: tuple[tuple[int, ...], ...]) -> tuple[Tensor, ...]:
    return tuple(torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)


def output_of(*qkv: Tensor, **options: Any) -> Tensor:
    """The output of attention without its weights."""
    found = regard.attention(*qkv, **options)
    output: Tensor = found[0] if isinstance(found, tuple) else found
    return output


@any_options
@any_shapes
def test_attention_has_second_derivatives(shapes: tuple[tuple[int, ...], ...], options: dict[str, Any]) -> None:
    assert torch.autograd.gradgradcheck(lambda *qkv: regard.attention(*qkv, **options), leaves(shapes))


def test_second_derivatives_know_that_query_key_and_value_are_one() -> None:
    x = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: regard.attention(x, x, x.sin(), causal=True), (x,))


def test_a_learned_bias_has_second_derivatives() -> None:
    x, bias = torch.randn(2, 5, 3).double(), torch.randn(5, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda bias: regard.attention(x, x, x, bias=bias), (bias,))


@pytest.mark.parametrize("length", [5, 70, 600])
def test_double_backward_at_any_length_in_float32(length: int) -> None:
    query, key, value = (torch.randn(1, 2, length, 8, requires_grad=True) for _ in range(3))

    def penalty(return_weights: bool) -> tuple[Tensor, ...]:
        output = output_of(query, key, value, causal=True, return_weights=return_weights)
        (first,) = torch.autograd.grad(output.sin().sum(), query, create_graph=True)
        return torch.autograd.grad(first.square().sum(), (query, key, value))

    torch.testing.assert_close(penalty(False), penalty(True), rtol=1e-3, atol=1e-5)


@any_options
@any_shapes
def test_attention_has_forward_derivatives(shapes: tuple[tuple[int, ...], ...], options: dict[str, Any]) -> None:
    inputs = leaves(shapes)
    assert torch.autograd.gradcheck(
        lambda *qkv: regard.attention(*qkv, **options), inputs, check_forward_ad=True, check_backward_ad=False
    )
    detached = tuple(x.detach() for x in inputs)
    tangents = tuple(torch.randn_like(x) for x in detached)

    def attend(*qkv: Tensor) -> Tensor:
        return output_of(*qkv, **options)

    along = jvp(attend, detached, tangents)[1]
    jacobians = jacfwd(attend, argnums=(0, 1, 2))(*detached)
    expected = sum(
        torch.tensordot(jacobian, tangent, dims=4) for jacobian, tangent in zip(jacobians, tangents, strict=True)
    )
    torch.testing.assert_close(along, expected)
    torch.testing.assert_close(jacobians, jacrev(attend, argnums=(0, 1, 2))(*detached))


@any_options
def test_attention_has_a_hessian(options: dict[str, Any]) -> None:
    query, key, value = (x.detach() for x in leaves(SHAPES["alike"]))

    def summed(query: Tensor) -> Tensor:
        return output_of(query, key, value, **options).sin().sum()

    found = hessian(summed)(query)
    expected = torch.autograd.functional.hessian(summed, query)
    torch.testing.assert_close(found, expected)


def test_attention_is_vectorized() -> None:
    query, key, value = torch.randn(3, 4, 2, 5, 8)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return regard.attention(query, key, value, causal=True)

    expected = regard.attention(query, key, value, causal=True)
    torch.testing.assert_close(vmap(attend)(query[:, None], key[:, None], value[:, None])[:, 0], expected)
    torch.testing.assert_close(vmap(attend, in_dims=1, out_dims=1)(query, key, value), expected)
    torch.testing.assert_close(vmap(vmap(attend))(query, key, value), expected)


def test_what_uses_no_derivatives_of_derivatives_takes_the_fused_kernel() -> None:
    x = torch.randn(1, 2, 9, 8, requires_grad=True)
    with torch.profiler.profile() as profiled:
        regard.attention(x, x, x, causal=True).sum().backward()
    names = {event.key for event in profiled.key_averages()}
    assert any("flash_attention" in name and "backward" in name for name in names)


# The model.

CHANGES: dict[str, dict[str, Any]] = {
    "post-norm": {},
    "pre-norm, gated, grouped": {"norm_placement": "pre", "activation": "swiglu", "num_kv_heads": 1},
    "rms norm, learned positions": {"norm": "rms", "positions": "learned", "activation": "gelu", "d_v": 3},
    "decoder alone": {"encoder_layers": 0},
}
any_model = pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
any_mode = pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])


def small_model(changes: dict[str, Any], training: bool, dtype: torch.dtype = torch.float64) -> Transformer:
    settings: dict[str, Any] = dict(
        d_model=8, num_heads=2, d_ff=6, encoder_layers=1, decoder_layers=1, dropout=0.0, max_positions=16
    )
    return model_of(TransformerConfig(vocab_size=VOCAB, **(settings | changes)), dtype=dtype).train(training)


def batch(rows: int = 2) -> tuple[Tensor, Tensor]:
    source, target = tokens(rows, 5, VOCAB), tokens(rows, 4, VOCAB)
    source[-1, 3:] = 0
    return source, target


def loss_of(model: Transformer, source: Tensor, target: Tensor) -> Callable[[dict[str, Tensor]], Tensor]:
    inputs = (source, target) if model.encoder is not None else (target,)

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        logits = functional_call(model, parameters, inputs)
        return regard.label_smoothed_cross_entropy(logits, target.roll(-1, -1))

    return loss


def parameters_of(model: Transformer) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


@any_model
@any_mode
def test_a_model_has_forward_derivatives(changes: dict[str, Any], training: bool) -> None:
    model = small_model(changes, training)
    loss, parameters = loss_of(model, *batch()), parameters_of(model)
    tangents = {name: torch.randn_like(parameter) for name, parameter in parameters.items()}
    value, along = jvp(loss, (parameters,), (tangents,))[:2]
    gradients = grad(loss)(parameters)
    torch.testing.assert_close(along, sum((gradients[name] * tangents[name]).sum() for name in parameters))
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad, name
    plain = loss(dict(model.named_parameters()))
    torch.testing.assert_close(value, plain)
    expected = torch.autograd.grad(plain, list(model.parameters()))
    torch.testing.assert_close(list(gradients.values()), list(expected))
    name = "decoder.layers.0.feed_forward.contract.bias"
    jacobian = jacfwd(lambda bias: loss(parameters | {name: bias}))(parameters[name])
    torch.testing.assert_close(jacobian, gradients[name])


@any_model
@any_mode
def test_a_model_has_a_hessian(changes: dict[str, Any], training: bool) -> None:
    model = small_model(changes, training)
    loss, parameters = loss_of(model, *batch()), parameters_of(model)
    name = "decoder.layers.0.self_attention.query.weight"

    def of_one(weight: Tensor) -> Tensor:
        return loss(parameters | {name: weight})

    expected = torch.autograd.functional.hessian(of_one, parameters[name])
    torch.testing.assert_close(hessian(of_one)(parameters[name]), expected)


@any_model
@any_mode
def test_a_model_has_double_backward(changes: dict[str, Any], training: bool) -> None:
    """As for a penalty on the gradient, against the derivative along it by torch.func."""
    model = small_model(changes, training)
    loss, parameters = loss_of(model, *batch()), list(model.parameters())
    first = torch.autograd.grad(loss(dict(model.named_parameters())), parameters, create_graph=True)
    penalty = sum((gradient.square().sum() for gradient in first), torch.zeros(()))
    second = torch.autograd.grad(penalty, parameters)
    plain = parameters_of(model)
    tangents = {name: 2 * gradient.detach() for name, gradient in zip(plain, first, strict=True)}
    expected = jvp(grad(loss), (plain,), (tangents,))[1]
    torch.testing.assert_close(list(second), list(expected.values()))


@any_model
@any_mode
def test_a_model_is_vectorized(changes: dict[str, Any], training: bool) -> None:
    """Over its batch, for a gradient of each example, and over its parameters, for an ensemble."""
    model = small_model(changes, training)
    source, target = batch(rows=3)
    parameters = parameters_of(model)

    def of_one(parameters: dict[str, Tensor], source: Tensor, target: Tensor) -> Tensor:
        return loss_of(model, source[None], target[None])(parameters)

    gradients = vmap(grad(of_one), in_dims=(None, 0, 0))(parameters, source, target)
    for row in range(3):
        expected = grad(of_one)(parameters, source[row], target[row])
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient[row], expected[name])
    ensemble = {name: torch.stack([parameter, 0.5 * parameter]) for name, parameter in parameters.items()}
    losses = vmap(loss_of(model, source, target))(ensemble)
    for number in range(2):
        member = {name: parameter[number] for name, parameter in ensemble.items()}
        torch.testing.assert_close(losses[number], loss_of(model, source, target)(member))


@any_options
@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_come_for_many_directions_at_once(options: dict[str, Any], create_graph: bool) -> None:
    query, key, value = (x.detach() for x in leaves(SHAPES["alike"]))

    def attend(query: Tensor) -> Tensor:
        return output_of(query, key, value, **options)

    def jacobian(vectorize: bool) -> Tensor:
        found: Tensor = torch.autograd.functional.jacobian(
            attend, query, vectorize=vectorize, create_graph=create_graph
        )
        return found

    torch.testing.assert_close(jacobian(True), jacobian(False))


@pytest.mark.parametrize("changes", [{}, {"norm_placement": "pre", "positions": "learned"}], ids=["post", "pre"])
def test_a_model_compiles_whole(changes: dict[str, Any]) -> None:
    model, inputs = small_model(changes, training=True, dtype=torch.float32), batch()
    logits = model(*inputs)
    expected = torch.autograd.grad(logits.sin().sum(), list(model.parameters()))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(*inputs)
    torch.testing.assert_close(compiled, logits)
    gradients = torch.autograd.grad(compiled.sin().sum(), list(model.parameters()))
    torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-4)


def test_a_model_is_exported_whole() -> None:
    model, inputs = small_model({}, training=False, dtype=torch.float32), batch()
    others = tuple(tokens.flip(0) for tokens in inputs)
    torch.testing.assert_close(torch.export.export(model, inputs).module()(*others), model(*others))
    traced = make_fx(lambda *tokens: functional_call(model, parameters_of(model), tokens))(*inputs)
    torch.testing.assert_close(traced(*others), model(*others))


def test_activations_may_be_computed_again() -> None:
    model = small_model({}, training=True)
    loss, parameters = loss_of(model, *batch()), dict[str, Tensor](model.named_parameters())
    expected = torch.autograd.grad(loss(parameters), list(parameters.values()))
    again = checkpoint(loss, parameters, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(again, list(parameters.values())), expected)
