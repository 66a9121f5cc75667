"""float32 matmul by the kernel: against float64, and what it does not depend on."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.acceleration import sgemm as module
from regard.acceleration.sgemm import by_kernel, sgemm, sgemm_and_sums, sgemm_into
from regard.kernels.bindings import kernels
from tests.unit.acceleration.problems import problem

found = kernels()
needs_the_kernel = pytest.mark.skipif(
    found is None or found.regard_sgemm_support() == 0, reason="the kernel needs a processor with AVX-512"
)
sizes = st.one_of(st.integers(1, 90), st.sampled_from([511, 512, 513, 1030]))


def columns(x: Tensor) -> Tensor:
    """The same numbers, with columns together in memory."""
    return x.T.contiguous().T


@pytest.fixture(autouse=True)
def wherever_it_runs_and_few_rows_too(monkeypatch: pytest.MonkeyPatch) -> None:
    can = found is not None and found.regard_sgemm_support() > 0
    monkeypatch.setattr(module, "_is_faster", lambda: can)
    monkeypatch.setattr(module, "_FEW_ROWS", 1)


def assert_exact(found: Tensor, exact: Tensor, D: int) -> None:
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5 * D**0.5)


@needs_the_kernel
@given(R=sizes, D=sizes, X=sizes, seed=st.integers(0, 99), transposed=st.booleans(), upright=st.booleans())
def test_products_are_those_of_float64(R: int, D: int, X: int, seed: int, transposed: bool, upright: bool) -> None:
    """Rows and weights in either order in memory, as the forward and the backward pass need them."""
    x, weight, bias = problem(R, D, X, seed)
    exact = x.double() @ weight.double().T
    x, weight = columns(x) if upright else x, columns(weight) if transposed else weight
    assert by_kernel(x, weight, bias)
    assert_exact(sgemm(x, weight, bias), exact + bias.double(), D)
    assert_exact(sgemm(x, weight), exact, D)
    product, sums = sgemm_and_sums(x, weight)
    assert_exact(product, exact, D)
    assert_exact(sums, x.double().sum(1), D)
    place = torch.full((R, X), torch.nan)
    sgemm_into(x, weight, place)
    assert_exact(place, exact, D)
    sgemm_into(x, weight, place, add=True)
    assert_exact(place, 2 * exact, D)


@needs_the_kernel
@pytest.mark.parametrize(("R", "D", "X"), [(4_000, 600, 33), (20, 600, 9_000), (30, 20_000, 90)])
def test_more_than_there_is_room_for_is_done_in_parts(R: int, D: int, X: int) -> None:
    x, weight, bias = problem(R, D, X, 2)
    exact = x.double() @ weight.double().T
    assert_exact(sgemm(x, weight, bias), exact + bias.double(), D)
    product, sums = sgemm_and_sums(columns(x), columns(weight))
    assert_exact(product, exact, D)
    assert_exact(sums, x.double().sum(1), D)


@needs_the_kernel
def test_nothing_is_written_beside_the_result() -> None:
    x, weight, _ = problem(29, 33, 47, 1)
    around = torch.full((29 * 47 + 64,), 7.0)
    sgemm_into(x, weight, around[32:-32].view(29, 47))
    assert around[:32].eq(7.0).all()
    assert around[-32:].eq(7.0).all()


@needs_the_kernel
def test_a_row_and_the_number_of_threads_change_nothing_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias = problem(301, 1100, 133, 9)
    alone = sgemm(x, weight, bias)
    for threads in (1, 2, 3):
        monkeypatch.setattr(module, "threads", lambda count=threads: count)
        assert sgemm(x, weight, bias).equal(alone)
        assert sgemm(columns(x), columns(weight), bias).equal(alone)
    assert sgemm(x[17:18], weight, bias).equal(alone[17:18])
    x[3] = torch.nan
    others = [row for row in range(301) if row != 3]
    loud = sgemm(x, weight, bias)
    assert loud[others].equal(alone[others])
    assert loud[3].isnan().all()
    assert sgemm(x, weight, bias)[3].isnan().all()


@pytest.mark.parametrize(
    ("x", "weight"),
    [
        (torch.randn(4, 5).double(), torch.randn(3, 5).double()),
        (torch.randn(0, 5), torch.randn(3, 5)),
        (torch.randn(4, 0), torch.randn(3, 0)),
        (torch.randn(4, 5), torch.randn(0, 5)),
        (torch.randn(4, 5), torch.randn(6, 10)[::2, ::2]),
    ],
)
def test_what_is_not_for_the_kernel_is_torchs(x: Tensor, weight: Tensor) -> None:
    assert not by_kernel(x, weight)
    torch.testing.assert_close(sgemm(x, weight), x @ weight.T)
    product, sums = sgemm_and_sums(x, weight)
    torch.testing.assert_close(product, x @ weight.T)
    torch.testing.assert_close(sums, x.sum(1))
