"""The kernels compute what they say, exactly, and every row by itself."""

import os

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from regard.acceleration.packed_linear import KernelInt8Linear, TorchInt8Linear, packed_weight
from regard.errors import InputError
from regard.kernels.bindings import LIBRARY, kernel_status

# A library that was built and cannot be used is a mistake, and not a reason to skip.
pytestmark = pytest.mark.skipif(
    not LIBRARY.exists() or os.environ.get("REGARD_KERNELS") == "off",
    reason="the kernels were not built, or are turned off",
)


def test_nothing_comes_of_nothing() -> None:
    linear = KernelInt8Linear(torch.randn(7, 5), None)
    assert linear(torch.zeros(0, 5)).shape == (0, 7)
    with pytest.raises(InputError, match=r"rows of 5 numbers are expected; got a tensor of shape \(3, 4\)"):
        linear(torch.zeros(3, 4))


SIZES = dict(R=st.integers(1, 30), D=st.integers(1, 70), X=st.integers(1, 50), seed=st.integers(0, 99))


@given(**SIZES, bias=st.booleans())
def test_products_are_those_of_the_rounded_numbers(R: int, D: int, X: int, seed: int, bias: bool) -> None:
    torch.manual_seed(seed)
    weight_XD, x_RD = torch.randn(X, D), torch.randn(R, D) * torch.rand(R, 1) * 9
    bias_X = torch.randn(X) if bias else None
    steps, row_steps = (127, 127) if kernel_status().level == "vnni" else (64, 63)
    scales_X = weight_XD.abs().amax(1) / steps
    scales_R1 = x_RD.abs().amax(1, keepdim=True) / row_steps + 1e-12
    whole_XD, whole_RD = (weight_XD / scales_X[:, None]).round().double(), (x_RD * (1 / scales_R1)).round().double()
    expected_RX = whole_RD @ whole_XD.T * scales_X.double() * scales_R1.double()
    if bias_X is not None:
        expected_RX += bias_X
    found_RX = KernelInt8Linear(weight_XD, bias_X)(x_RD)
    # A number that lies between two steps may be rounded to either.
    slack = float(scales_R1.max()) * float(weight_XD.abs().max())
    assert (found_RX - expected_RX).abs().max() <= 1e-4 + slack
    assert (found_RX - expected_RX).abs().mean() <= 1e-4 + 0.1 * slack


@given(**SIZES)
def test_a_row_is_the_same_whatever_is_beside_it(R: int, D: int, X: int, seed: int) -> None:
    torch.manual_seed(seed)
    linear = KernelInt8Linear(torch.randn(X, D), torch.randn(X))
    x_RD = torch.randn(R, D)
    together_RX = linear(x_RD)
    for row in range(R):
        assert linear(x_RD[row : row + 1]).equal(together_RX[row : row + 1])


def test_several_threads_compute_the_same() -> None:
    torch.manual_seed(0)
    linear, x_RD = KernelInt8Linear(torch.randn(1000, 300), torch.randn(1000)), torch.randn(60, 300)
    alone_RX = linear(x_RD)
    torch.set_num_threads(3)
    together_RX = linear(x_RD)
    torch.set_num_threads(1)
    assert together_RX.equal(alone_RX)


def test_zeros_strides_and_many_outputs() -> None:
    torch.manual_seed(0)
    weight_XD, bias_X = torch.randn(2100, 16), torch.randn(2100)
    linear = packed_weight(weight_XD, bias_X, "int8")
    assert isinstance(linear, KernelInt8Linear)
    assert linear(torch.zeros(3, 16)).equal(bias_X.expand(3, -1))
    x_RD = torch.randn(16, 60).T
    for rows in (x_RD, x_RD[:7]):
        found, exact = linear(rows), F.linear(rows, weight_XD, bias_X)
        assert found.equal(linear(rows.contiguous()))
        for other in (found, TorchInt8Linear(weight_XD, bias_X)(rows)):
            assert (other - exact).abs().mean() < 0.02 * exact.std()


def test_what_is_not_a_number_does_not_become_one() -> None:
    linear = KernelInt8Linear(torch.ones(20, 18), torch.zeros(20))
    for wrong in (torch.nan, torch.inf):
        for place in (0, 9, 17):
            x_RD = torch.ones(3, 18)
            x_RD[1, place] = wrong
            found_RX = linear(x_RD)
            assert found_RX[1].isnan().all()
            assert not found_RX[[0, 2]].isnan().any()
    with pytest.raises(InputError, match="int8 decoding is for float32 models, and this is torch.float64"):
        linear(torch.ones(3, 18, dtype=torch.float64))
