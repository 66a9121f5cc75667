import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.errors import InputError
from regard.ops import layer_norm, post_norm_residual, pre_norm_residual, rms_norm


@given(st.integers(1, 9), st.sampled_from([0.0, 1e-12, 1e-5, 0.1]), st.integers(0, 1000))
def test_norms_are_their_equations(D: int, eps: float, seed: int) -> None:
    torch.manual_seed(seed)
    x, gamma, beta = torch.randn(3, D + 1, dtype=torch.float64), *torch.randn(2, D + 1, dtype=torch.float64)
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
    expected = (x - mean) / (variance + eps).sqrt() * gamma + beta
    torch.testing.assert_close(layer_norm(x, gamma, beta, eps=eps), expected)
    expected = x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * gamma
    torch.testing.assert_close(rms_norm(x, gamma, eps=eps), expected)


@pytest.mark.parametrize("value", [0.0, 0.1, -3.3e8, 1e-30])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_constant_rows_give_beta_and_stay_finite_on_the_way_back(value: float, eps: float) -> None:
    x = torch.full((2, 7), value, requires_grad=True)
    beta = torch.arange(7.0)
    y = layer_norm(x, torch.ones(7), beta, eps=eps)
    assert y.isfinite().all()
    if eps == 0.0:
        assert y.equal(beta.expand(2, 7))
    (gradient,) = torch.autograd.grad((y * torch.randn(2, 7)).sum(), x)
    assert gradient.isfinite().all()


def test_a_zero_row_of_rms_norm_stays_zero() -> None:
    x = torch.zeros(1, 3, requires_grad=True)
    y = rms_norm(x, torch.ones(3), eps=0.0)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert y.equal(torch.zeros(1, 3))
    assert gradient.equal(torch.zeros(1, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [1e-25, 300.0, 1e30])
def test_without_epsilon_the_size_of_a_row_does_not_matter(dtype: torch.dtype, size: float) -> None:
    x = (torch.tensor([[1.0, -1.0, 3.0, -3.0]], dtype=torch.float64) * size).to(dtype)
    if not x.isfinite().all() or (x == 0).all():
        return  # the type cannot hold such a row
    expected = torch.tensor([[1.0, -1.0, 3.0, -3.0]]) / 5**0.5
    for norm in (layer_norm, rms_norm):
        torch.testing.assert_close(norm(x, eps=0.0).float(), expected, atol=1e-2, rtol=1e-2)


def test_gradients_without_epsilon() -> None:
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: layer_norm(x, eps=0.0), (x,))
    assert torch.autograd.gradcheck(lambda x: rms_norm(x, eps=0.0), (x,))


def test_a_bad_epsilon_is_told() -> None:
    for norm in (layer_norm, rms_norm):
        with pytest.raises(InputError, match="eps is -1"):
            norm(torch.ones(2), eps=-1.0)


def test_residuals_are_their_equations() -> None:
    x = torch.randn(2, 3)

    def double(y: Tensor) -> Tensor:
        return 2 * y

    def shift(y: Tensor) -> Tensor:
        return y + 1

    torch.testing.assert_close(pre_norm_residual(x, double, shift), x + 2 * (x + 1))
    torch.testing.assert_close(post_norm_residual(x, double, shift), 3 * x + 1)
