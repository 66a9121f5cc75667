"""int8 matmul: the kernel against the formula."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from regard.acceleration import int8_matmul as module
from regard.acceleration.int8_matmul import BOTH_STOCHASTIC, NEAREST, ROWS_STOCHASTIC, Rounding, int8_matmul
from tests.unit.acceleration.problems import needs_kernels, problem

sizes = st.integers(1, 90)
roundings = (NEAREST, ROWS_STOCHASTIC, BOTH_STOCHASTIC)


@needs_kernels
@given(
    R=sizes,
    D=sizes,
    X=sizes,
    seed=st.integers(0, 99),
    transposed=st.booleans(),
    columns=st.booleans(),
    with_bias=st.booleans(),
    rounding=st.sampled_from(roundings),
)
def test_the_kernel_computes_the_formula(
    R: int, D: int, X: int, seed: int, transposed: bool, columns: bool, with_bias: bool, rounding: Rounding
) -> None:
    """Rows and weights in either order in memory, as the forward and the backward pass need them."""
    x, weight, bias = problem(R, D, X, seed)
    x = x.T.contiguous().T if columns else x
    weight = weight.T.contiguous().T if transposed else weight
    given_bias = bias if with_bias else None
    found = int8_matmul(x, weight, given_bias, rounding)
    expected = module._product_by_formula(x, weight, given_bias, rounding)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)
    # Of each product's two factors, one is off by a step of 63 at most, one by a step of 64; by half, to the nearest.
    of_weight = 1.0 if rounding.stochastic_weights else 0.5
    worst = D * float(x.abs().max() * weight.abs().max()) * (1 / 63 + of_weight / 64 + of_weight / 63 / 64)
    exact = F.linear(x.double(), weight.double(), None if given_bias is None else given_bias.double())
    assert float((found.double() - exact).abs().max()) <= worst + 1e-3


@needs_kernels
def test_the_number_of_threads_changes_nothing() -> None:
    x, weight, bias = problem(301, 1100, 133, 9)
    results = []
    for threads in (1, 2, 3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "threads", lambda count=threads: count)
            results.append(
                [
                    int8_matmul(x, weight, bias, NEAREST),
                    int8_matmul(x, weight.T.contiguous().T, bias, ROWS_STOCHASTIC),
                    int8_matmul(x.T.contiguous().T, weight.T.contiguous().T, None, BOTH_STOCHASTIC),
                ]
            )
    for other in results[1:]:
        assert all(mine.equal(first) for mine, first in zip(other, results[0], strict=True))


@needs_kernels
@pytest.mark.parametrize("D", [1023, 1024, 1025, 2048, 3000])
def test_many_inputs_are_rounded_in_parts(D: int) -> None:
    x, weight, bias = problem(5, D, 7, D)
    x[:, 1024:] *= 100  # which the first part does not know of
    found = int8_matmul(x, weight, bias, BOTH_STOCHASTIC)
    expected = module._product_by_formula(x, weight, bias, BOTH_STOCHASTIC)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-2)
    transposed = int8_matmul(x.T.contiguous().T, weight.T.contiguous().T, bias, BOTH_STOCHASTIC)
    torch.testing.assert_close(transposed, found, rtol=1e-5, atol=1e-3)
