"""The residual connection by one kernel in training, and when it is not."""

import pytest
import torch
from torch import Tensor, nn

from regard.acceleration.residual import FusedResidual
from regard.kernels.bindings import kernels
from regard.layers import Dropout, LayerNorm, Residual, RMSNorm
from regard.layers.residual import NormPlacement
from regard.ops import layer_norm

pytestmark = pytest.mark.skipif(kernels() is None, reason="the kernels were not built: there was no compiler")


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_it_is_what_the_plain_one_is(placement: NormPlacement, norm: type, rate: float) -> None:
    layer, sublayer = Residual(norm(8), placement=placement, dropout=rate), nn.Linear(8, 8)
    x = torch.randn(2, 3, 8, requires_grad=True)

    def output_and_gradients() -> tuple[Tensor, ...]:
        torch.manual_seed(1)
        output = layer(x, sublayer)
        return output, *torch.autograd.grad(output.sin().sum(), [x, *layer.parameters(), *sublayer.parameters()])

    for training in (True, False):
        layer.train(training).__class__ = Residual
        expected = output_and_gradients()
        layer.__class__ = FusedResidual
        torch.testing.assert_close(output_and_gradients(), expected, rtol=1e-4, atol=1e-5)
        is_fused = "AddNorm" in type(layer(x, sublayer).grad_fn).__name__
        assert is_fused == (training and placement == "post" and norm is LayerNorm)


def test_in_training_it_heeds_what_is_done_to_its_parts() -> None:
    x, layer = torch.randn(2, 3, 8), FusedResidual(LayerNorm(8), placement="post", dropout=0.5)
    expected = layer_norm(2 * x, layer.norm.weight, layer.norm.bias)  # type: ignore[arg-type]
    layer.dropout.eval()
    torch.testing.assert_close(layer(x, lambda x: x), expected)
    outputs: list[Tensor] = []
    layer.norm.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    torch.testing.assert_close(layer(x, lambda x: x), expected)
    assert len(outputs) == 1
    layer.dropout = nn.Identity()  # type: ignore[assignment]
    torch.testing.assert_close(layer(x, lambda x: x), expected)


class Doubling(Dropout):
    """Dropout that is not ours."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


def test_dropout_of_another_class_is_called() -> None:
    x, layer = torch.randn(2, 3, 8), FusedResidual(LayerNorm(8), placement="post")
    layer.dropout = Doubling(0.0)
    torch.testing.assert_close(layer(x, lambda x: x), layer.norm(3 * x))


def test_it_compiles_whole() -> None:
    layer, x = FusedResidual(LayerNorm(8), placement="post"), torch.randn(2, 3, 8)
    compiled = torch.compile(lambda x: layer(x, lambda x: 2 * x), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), layer(x, lambda x: 2 * x))
