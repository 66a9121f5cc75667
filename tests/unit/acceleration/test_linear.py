"""Linear layers in int8 and by sgemm: how far they are from the plain one, and their gradients."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.acceleration import int8_matmul
from regard.acceleration.accelerate import accelerate
from regard.acceleration.linear import Int8Linear, SgemmLinear, int8_linear, sgemm_linear
from regard.errors import InputError
from regard.kernels.bindings import kernels
from regard.layers import FeedForward
from tests.unit.acceleration.problems import needs_kernels, problem


def steps_of_weights() -> int:
    found = kernels()
    return 127 if found is not None and found.regard_level() == 2 else 64


def layer_of(cls: type[nn.Linear], weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    layer = cls(weight.size(1), weight.size(0), bias=bias is not None)
    layer.weight = nn.Parameter(weight)
    layer.bias = None if bias is None else nn.Parameter(bias)  # type: ignore[assignment]
    return layer


def test_typical_rows_are_off_by_two_hundredths() -> None:
    x, weight, _ = problem(300, 256, 200, 1)
    exact = F.linear(x, weight)
    assert float((int8_linear(x, weight) - exact).norm() / exact.norm()) < 0.03


def test_a_row_does_not_depend_on_its_neighbors() -> None:
    x, weight, bias = problem(40, 64, 48, 2)
    loud = torch.cat([x[:1], 1e6 * x[1:]])
    together, alone = int8_linear(loud, weight, bias)[0], int8_linear(x[:1], weight, bias)[0]
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)
    assert kernels() is None or together.equal(alone)


def test_the_gradient_of_the_input_is_unbiased() -> None:
    """Its stochastic rounding differs with the size of the largest number."""
    x, weight, _ = problem(64, 48, 80, 3)
    grad = torch.randn(64, 80, generator=torch.Generator().manual_seed(4))
    x.requires_grad_()
    steps = weight.abs().amax(0) / steps_of_weights()  # rounded to the nearest, the same way each time
    exact = grad @ ((weight / steps).round() * steps)
    samples, total, error = 200, torch.zeros_like(x), 0.0
    for sample in range(samples):
        factor = 1.0 + sample / samples
        (of_x,) = torch.autograd.grad(int8_linear(x, weight), x, grad * factor)
        error = max(error, float((of_x / factor - exact).norm() / exact.norm()))
        total += of_x / factor
    assert 1e-3 < error < 0.05
    assert float((total / samples - exact).norm() / exact.norm()) < 4 * error / samples**0.5


def test_gradients_of_weights_are_unbiased_and_those_of_biases_exact() -> None:
    """Even where one row is so large that all others are less than a step."""
    x, weight, bias = problem(300, 48, 80, 5)
    x = 0.5 * x.abs()
    x[7] = 100.0
    grad = 1.0 + torch.randn(300, 80, generator=torch.Generator().manual_seed(6))
    leaves = [tensor.clone().requires_grad_() for tensor in (weight, bias)]
    exact = grad.T @ x
    samples, total, error = 400, torch.zeros_like(weight), 0.0
    for sample in range(samples):
        factor = 1.0 + sample / samples
        of_weight, of_bias = torch.autograd.grad(int8_linear(x * factor, *leaves), leaves, grad * factor)
        torch.testing.assert_close(of_bias, (grad * factor).sum(0))
        error = max(error, float((of_weight / factor**2 - exact).norm() / exact.norm()))
        total += of_weight / factor**2
    assert 1e-3 < error < 0.2
    assert float((total / samples - exact).norm() / exact.norm()) < 4 * error / samples**0.5


def test_rounding_changes_the_gradient_of_weights_much_less_than_another_batch_does() -> None:
    """Even where few rows have most of it, and of the inputs."""
    x, weight, _ = problem(1000, 64, 64, 5)
    x = x.exp()
    weight.requires_grad_()
    generator = torch.Generator().manual_seed(6)
    grad, other = (
        torch.randn(1000, 64, generator=generator) * torch.randn(1000, 1, generator=generator).exp() for _ in range(2)
    )
    (found,) = torch.autograd.grad(int8_linear(x, weight), weight, grad)
    exact = grad.T @ x
    noise = (exact - other.T @ x).square().sum() / 2
    assert float((found - exact).square().sum()) < 0.03 * float(noise)


def test_more_rows_than_32_bits_have_room_for() -> None:
    x, weight = torch.ones(600_000, 2), torch.ones(3, 2, requires_grad=True)
    (of_weight,) = torch.autograd.grad(int8_linear(x, weight).sum(), weight)
    torch.testing.assert_close(of_weight, torch.full((3, 2), 600_000.0))


@pytest.mark.parametrize("shape", [(0, 8), (2, 0, 8), (2, 3, 8), (8,)])
def test_any_number_of_rows(shape: tuple[int, ...]) -> None:
    x, weight = torch.randn(shape), torch.randn(5, 8)
    found = int8_linear(x, weight)
    assert found.shape == (*shape[:-1], 5)
    torch.testing.assert_close(found, F.linear(x, weight), rtol=0.1, atol=0.5)


def test_what_is_not_a_number_stays_none() -> None:
    x, weight, bias = problem(4, 16, 8, 6)
    x[1, 3], weight[2, 5] = torch.nan, torch.inf
    found = int8_linear(x, weight, bias)
    assert found[1].isnan().all()
    assert not found[:, 2].isfinite().any()
    assert found[0, [0, 1, 3, 4, 5, 6, 7]].isfinite().all()


def test_what_is_not_a_number_stays_none_in_gradients_of_weights() -> None:
    x, weight, _ = problem(20, 16, 8, 6)
    grad = torch.randn(20, 8)
    x[4, 3], grad[7, 2] = torch.inf, torch.nan
    (of_weight,) = torch.autograd.grad(int8_linear(x, weight.requires_grad_()), weight, grad)
    wrong = torch.zeros(8, 16, dtype=torch.bool)
    wrong[2], wrong[:, 3] = True, True
    assert of_weight.isfinite().eq(~wrong).all()


def test_in_evaluation_and_in_other_precisions_nothing_is_rounded() -> None:
    x, weight, bias = problem(4, 16, 8, 7)
    layer = layer_of(Int8Linear, weight, bias)
    assert layer(x).equal(int8_linear(x, weight, bias))
    assert not layer(x).equal(F.linear(x, weight, bias))
    assert layer.eval()(x).equal(F.linear(x, weight, bias))
    layer.train().double()
    assert layer(x.double()).equal(F.linear(x.double(), weight.double(), bias.double()))


def test_gradients_that_are_expanded_transposed_negated_or_many() -> None:
    x, weight, bias = problem(6, 16, 8, 10)
    leaves = x.requires_grad_(), weight.requires_grad_()
    y = int8_linear(x, weight, bias)
    plain = 1e-6 * torch.randn(6, 8)  # as small as gradients are

    def back(grad: Tensor) -> Tensor:
        return torch.cat([part.flatten() for part in torch.autograd.grad(y, leaves, grad, retain_graph=True)])

    assert back(plain.T.contiguous().T).equal(back(plain))
    assert back(torch._neg_view(plain)).equal(back(-plain))
    assert back(plain[:1].expand(6, 8)).equal(back(plain[:1].repeat(6, 1)))
    many = torch.autograd.grad(y, x, torch.stack([plain, 2 * plain]), retain_graph=True, is_grads_batched=True)[0]
    torch.testing.assert_close(many[1], 2 * plain @ weight)  # which nobody rounds
    assert back(2 * plain).equal(2 * back(plain))  # a power of two changes no random bit


@pytest.mark.parametrize("shape", [(16,), (0, 16), (2, 0, 16), (1, 1, 16)])
def test_gradients_of_one_row_and_of_none(shape: tuple[int, ...]) -> None:
    x, weight, bias = (
        torch.randn(shape, requires_grad=True),
        *(part.requires_grad_() for part in problem(1, 16, 8, 12)[1:]),
    )
    for mine, leaf in zip(
        torch.autograd.grad(int8_linear(x, weight, bias).sum(), (x, weight, bias)), (x, weight, bias), strict=True
    ):
        assert mine.shape == leaf.shape
        exact = torch.autograd.grad(F.linear(x, weight, bias).sum(), leaf)[0]
        torch.testing.assert_close(mine, exact, rtol=0.05, atol=0.2)


@pytest.mark.parametrize("by_kernel", [pytest.param(True, marks=needs_kernels), False])
@pytest.mark.parametrize("rows", [6, 0])
def test_what_changes_the_result_in_its_place_costs_no_copies(
    rows: int, by_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ReLU does: were the result a view of something, all of it would be copied and put together again."""
    if not by_kernel:
        monkeypatch.setattr(int8_matmul, "can_compute", lambda *tensors: False)
    x, weight, bias = problem(rows, 16, 8, 11)
    y = int8_linear(x.view(2, rows // 2, 16), weight.requires_grad_(), bias).relu_()
    assert not y._is_view()
    (of_weight,) = torch.autograd.grad(y.sum(), weight)
    torch.testing.assert_close(of_weight, (y > 0).float().flatten(0, 1).T @ x, rtol=0.05, atol=0.2)


def test_what_is_traced_or_transformed_is_not_rounded() -> None:
    x = torch.randn(2, 3, 8)
    layer = FeedForward(8)
    expected = layer(x)
    accelerate(layer, precision="int8")
    for training in (True, False):
        compiled = torch.compile(layer.train(training), fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), expected)
    linear = layer_of(Int8Linear, torch.randn(5, 8))
    found = torch.func.grad(lambda w: torch.func.functional_call(linear, {"weight": w}, x).sum())(linear.weight)
    torch.testing.assert_close(found, x.flatten(0, 1).sum(0).expand(5, 8))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((4, 10), (5, 8), None), r"rows \(4, 10\) do not fit weights \(5, 8\)"),
        (((4, 8), (5, 8), (2,)), r"weights \(5, 8\) need a bias for each output, got \(2,\)"),
    ],
)
def test_shapes_that_do_not_fit(shapes: tuple[tuple[int, ...], ...], message: str) -> None:
    x, weight, bias = (None if shape is None else torch.randn(shape) for shape in shapes)
    assert x is not None
    assert weight is not None
    with pytest.raises(InputError, match=message):
        int8_linear(x, weight, bias)


def test_rows_and_weights_on_different_devices() -> None:
    with pytest.raises(InputError, match="rows are on meta, and weights on cpu"):
        int8_linear(torch.randn(4, 8, device="meta"), torch.randn(5, 8))


def test_second_derivatives_are_refused() -> None:
    x, weight, _ = problem(4, 16, 8, 8)
    with pytest.raises(InputError, match="an int8 linear layer has no second derivatives"):
        torch.autograd.grad(int8_linear(x.requires_grad_(), weight).sum(), x, create_graph=True)


def by_sgemm(x: Tensor, weight: Tensor, bias: Tensor | None) -> list[Tensor]:
    leaves = [leaf.detach().clone().requires_grad_() for leaf in (x, weight, bias) if leaf is not None]
    y = sgemm_linear(leaves[0], leaves[1], leaves[2] if bias is not None else None)
    return [y, *torch.autograd.grad(y.sin().sum(), leaves)]


@pytest.mark.parametrize("shape", [(3, 40, 70), (200, 70), (70, 70)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_floats_and_their_gradients_are_those_of_float64(shape: tuple[int, ...], with_bias: bool) -> None:
    """With as many rows and outputs as the kernel is for, where there is one."""
    x, weight, bias = problem(shape[-2], 70, 80, 3)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(4))
    given = bias if with_bias else None
    exact = by_sgemm(x.double(), weight.double(), None if given is None else given.double())
    for mine, other in zip(by_sgemm(x, weight, given), exact, strict=True):
        torch.testing.assert_close(mine.double(), other, rtol=1e-5, atol=1e-4)


def test_a_float32_matmul_by_the_kernel_has_second_derivatives() -> None:
    x, weight, bias = (part.requires_grad_() for part in problem(100, 6, 5, 8))
    penalties = []
    for multiply in (sgemm_linear, F.linear):
        (first,) = torch.autograd.grad(multiply(x, weight, bias).sin().sum(), x, create_graph=True)
        penalties.append(torch.autograd.grad(first.square().sum(), weight)[0])
    torch.testing.assert_close(*penalties, rtol=1e-4, atol=1e-4)


def test_under_autocast_floats_are_torchs() -> None:
    x, weight, bias = problem(100, 16, 8, 9)
    with torch.autocast("cpu", torch.bfloat16):
        assert sgemm_linear(x, weight, bias).dtype == torch.bfloat16


def test_sums_over_many_rows_are_as_exact_as_torchs() -> None:
    """One sum of floats in a row would be off by thousandths."""
    x, weight, bias = torch.full((40_000, 70), 0.1), torch.zeros(80, 70), torch.zeros(80)
    leaves = weight.requires_grad_(), bias.requires_grad_()
    of_weight, of_bias = torch.autograd.grad((0.1 * sgemm_linear(x, *leaves)).sum(), leaves)
    torch.testing.assert_close(of_weight, torch.full((80, 70), 400.0), rtol=2e-5, atol=0.0)
    torch.testing.assert_close(of_bias, torch.full((80,), 4000.0), rtol=2e-5, atol=0.0)


def test_only_what_the_backward_pass_needs_is_kept() -> None:
    x, weight, _ = problem(100, 24, 70, 4)
    inner = x.requires_grad_() * 1
    y = sgemm_linear(inner, weight, None)  # which does not learn
    inner.add_(1)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], weight.sum(0).expand(100, 24))
    learning = weight.requires_grad_()
    y = sgemm_linear(x.detach(), learning, None)
    with torch.no_grad():
        learning.add_(1)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), learning)[0], x.detach().sum(0).expand(70, 24))


@pytest.mark.parametrize("which", ["weight", "bias"])
def test_what_has_lost_its_memory_is_told(which: str) -> None:
    """As parameters have between their uses where they are shared out."""
    x, weight, bias = problem(100, 24, 70, 5)
    (weight if which == "weight" else bias).untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="storage"):
        sgemm_linear(x, weight, bias)


def test_weights_that_do_not_lie_in_rows_are_torchs() -> None:
    x, weight, bias = problem(100, 24, 70, 6)
    torch.testing.assert_close(sgemm_linear(x, weight.to_sparse_csr(), None), F.linear(x, weight), rtol=1e-4, atol=1e-4)
    nested = torch.nested.nested_tensor([x, x[:30]])
    torch.testing.assert_close(sgemm_linear(nested, weight, bias).unbind()[1], F.linear(x[:30], weight, bias))


def test_a_replaced_linear_layer_computes_what_it_did() -> None:
    layer, x = nn.Linear(24, 70), torch.randn(3, 40, 24, requires_grad=True)
    expected = layer(x)
    gradients = torch.autograd.grad(expected.sin().sum(), [x, *layer.parameters()])
    layer.__class__ = SgemmLinear
    found = layer(x)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        torch.autograd.grad(found.sin().sum(), [x, *layer.parameters()]), gradients, rtol=1e-4, atol=1e-4
    )
