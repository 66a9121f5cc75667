"""The smaller layers: dropout where the paper has it, norms, embeddings, positions."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from regard import InputError, Transformer, TransformerConfig
from regard.layers import (
    Dropout,
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
    OutputProjection,
    RMSNorm,
    SinusoidalPositions,
    TokenEmbedding,
)
from regard.layers.residual import NormPlacement, Residual
from regard.ops import (
    layer_norm,
    post_norm_residual,
    pre_norm_residual,
    rms_norm,
    sinusoidal_positions,
)
from regard.ops.feed_forward import Activation, activate


def test_d_ff_is_four_times_d_model_unless_given() -> None:
    assert FeedForward(6).expand.weight.shape == (24, 6)
    assert FeedForward(6, 10).expand.weight.shape == (10, 6)


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_tanh"])
@pytest.mark.parametrize("bias", [True, False])
def test_feed_forward_is_its_equation(activation: Activation, bias: bool) -> None:
    layer, x = FeedForward(4, 6, activation=activation, bias=bias), torch.randn(2, 3, 4)

    def projected(linear: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        return x @ linear.weight.T + (linear.bias if bias else 0.0)

    gate = None if layer.gate is None else projected(layer.gate, x)
    expected = projected(layer.contract, activate(projected(layer.expand, x), activation, gate))
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("norm", [LayerNorm(8), RMSNorm(8)], ids=["layer", "rms"])
def test_a_residual_is_its_equation_in_training_too(placement: NormPlacement, norm: torch.nn.Module) -> None:
    x, sublayer = torch.randn(2, 3, 8), torch.nn.Linear(8, 8)
    connect = pre_norm_residual if placement == "pre" else post_norm_residual
    for rate in (0.0, 0.5):
        layer = Residual(norm, placement=placement, dropout=rate).train()
        torch.manual_seed(1)
        found = layer(x, sublayer)
        torch.manual_seed(1)
        drop = Dropout(rate)
        torch.testing.assert_close(found, connect(x, torch.nn.Sequential(sublayer, drop), norm))
        torch.testing.assert_close(layer.eval()(x, sublayer), connect(x, sublayer, norm))


def test_a_residual_in_training_heeds_what_is_done_to_its_parts() -> None:
    x, layer = torch.randn(2, 3, 8), Residual(LayerNorm(8), placement="post", dropout=0.5).train()
    expected = layer_norm(2 * x, layer.norm.weight, layer.norm.bias)  # type: ignore[arg-type]
    layer.dropout.eval()
    torch.testing.assert_close(layer(x, lambda x: x), expected)
    seen: list[torch.Tensor] = []
    layer.norm.register_forward_hook(lambda module, inputs, output: seen.append(output))
    torch.testing.assert_close(layer(x, lambda x: x), expected)
    assert len(seen) == 1
    layer.dropout = torch.nn.Identity()  # type: ignore[assignment]
    torch.testing.assert_close(layer(x, lambda x: x), expected)


def test_a_residual_in_training_compiles_whole() -> None:
    layer = Residual(LayerNorm(8), placement="post").train()
    x = torch.randn(2, 3, 8)
    compiled = torch.compile(lambda x: layer(x, lambda x: 2 * x), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), layer(x, lambda x: 2 * x))


def test_norms_apply_their_equations() -> None:
    x = torch.randn(2, 5)
    norm, rms = LayerNorm(5, eps=0.3), RMSNorm(5, eps=0.2)
    for parameter in (*norm.parameters(), *rms.parameters()):
        torch.nn.init.normal_(parameter)
    assert norm(x).equal(layer_norm(x, norm.weight, norm.bias, eps=0.3))
    assert rms(x).equal(rms_norm(x, rms.weight, eps=0.2))


def test_embeddings_are_scaled_by_the_root_of_the_width() -> None:
    tokens = torch.tensor([[1, 2]])
    scaled, plain = TokenEmbedding(5, 16), TokenEmbedding(5, 16, scaled=False)
    torch.testing.assert_close(scaled(tokens), scaled.weight[tokens] * 4)
    assert plain(tokens).equal(plain.weight[tokens])


@pytest.mark.parametrize("field", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_dropout_acts_in_training_and_only_there(field: str) -> None:
    rates = {"dropout": 0.0, field: 0.5}
    model = Transformer(TransformerConfig.preset("tiny", vocab_size=9, **rates))
    x = torch.tensor([[1, 2, 3]])
    model.train()
    assert not model(x, x).equal(model(x, x))
    model.eval()
    assert model(x, x).equal(model(x, x))


def test_the_paper_drops_from_every_sublayer_and_from_the_embeddings() -> None:
    model = Transformer(TransformerConfig.preset("tiny", vocab_size=9, dropout=0.25))
    rates = [
        module.rate for name, module in model.named_modules() if isinstance(module, Dropout) and "forward." not in name
    ]
    assert rates == [0.25] * (2 + 4 * 2 + 4 * 3)


def test_a_bad_rate_is_told() -> None:
    for make in (
        lambda: Dropout(1.5),
        lambda: MultiHeadAttention(8, 2, dropout=1.5),
        lambda: FeedForward(8, dropout=1.5),
    ):
        with pytest.raises(InputError, match=r"1\.5"):
            make()


def test_sinusoids_are_rounded_once_whatever_types_they_went_through() -> None:
    layer = SinusoidalPositions(6, length=4, offset=1).bfloat16().float().double()
    before = layer(torch.arange(3), 3)
    assert before.equal(sinusoidal_positions(4, 6)[1:])
    layer(torch.arange(50), 50)
    assert layer(torch.arange(3), 3).equal(before)


def test_the_linear_layers_are_called_as_modules() -> None:
    """Hooks, quantized and adapted layers put in their place depend on it."""
    model = Transformer(TransformerConfig.preset("tiny", vocab_size=9, activation="swiglu"))
    called: set[str] = set()
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda *_, name=name: called.add(name))
    x = torch.tensor([[1, 2, 3]])
    model(x, x)
    assert called == {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}


def test_an_overridden_matrix_is_the_one_that_is_multiplied_with() -> None:
    class Doubled(OutputProjection):
        def matrix(self) -> Tensor:
            return 2 * super().matrix()

    class DoubledRows(TokenEmbedding):
        def matrix(self) -> Tensor:
            return 2 * super().matrix()

    output, tokens = OutputProjection(7, 4), TokenEmbedding(7, 4)
    states, numbers = torch.randn(2, 3, 4), torch.randint(7, (2, 3))
    logits, rows = output(states), tokens(numbers)
    output.__class__, tokens.__class__ = Doubled, DoubledRows
    torch.testing.assert_close(output(states), 2 * logits)
    torch.testing.assert_close(tokens(numbers), 2 * rows)


def test_a_table_that_was_changed_does_not_grow() -> None:
    positions = SinusoidalPositions(6, length=4)
    assert positions.rows(5).size(0) >= 5
    positions.table.mul_(0.5)
    positions.rows(positions.table.size(0))
    with pytest.raises(InputError, match="a table of sinusoids that was changed ends at 8 positions"):
        positions.rows(9)


class _NoFloat64(TorchDispatchMode):
    """Stands for a device without float64: nothing of that type is on it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for x in found if isinstance(found, tuple) else [found]:
            assert not isinstance(x, Tensor) or not x.is_meta or x.dtype != torch.float64, func
        return found


def test_sinusoids_grow_on_a_device_without_float64() -> None:
    positions = SinusoidalPositions(6, length=4).to("meta")
    with _NoFloat64():
        assert positions.rows(9).is_meta
        assert positions.half().table.dtype == torch.float16
