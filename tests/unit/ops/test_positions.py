from decimal import Decimal, localcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.errors import InputError

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")


def sine(x: Decimal) -> Decimal:
    """Sum the series after taking off whole turns, in 40 digits."""
    x = x % (2 * PI)
    term = total = x
    n = 1
    while abs(term) > Decimal("1e-35"):
        term *= -x * x / ((2 * n) * (2 * n + 1))
        total += term
        n += 1
    return total


@given(st.sampled_from([1, 2, 999, 77_777, 99_999, 100_000]), st.sampled_from([1, 2, 3, 8, 9, 512]), st.data())
def test_exact_but_for_the_rounding_of_the_angle_at_any_position(
    position: int, d_model: int, data: st.DataObject
) -> None:
    column = data.draw(st.integers(0, d_model - 1))
    with localcontext(prec=40):
        angle = position / Decimal(10000) ** (Decimal(column // 2 * 2) / d_model)
        expected = float(sine(angle if column % 2 == 0 else angle + PI / 2))
    actual = regard.sinusoidal_positions(position + 1, d_model)[position, column].item()
    assert abs(actual - expected) < 1e-15 + position * 2.0**-52  # an angle of n radians is rounded by n · 2⁻⁵³


def test_interleaved_as_in_the_paper() -> None:
    table = regard.sinusoidal_positions(6, 8)
    position = torch.arange(6, dtype=torch.float64)
    for i in range(4):
        angle = position / 10000 ** (2 * i / 8)
        torch.testing.assert_close(table[:, 2 * i], angle.sin())
        torch.testing.assert_close(table[:, 2 * i + 1], angle.cos())


@pytest.mark.parametrize("d_model", [7, 8])
def test_halves_hold_the_same_columns(d_model: int) -> None:
    table = regard.sinusoidal_positions(5, d_model)
    halves = regard.sinusoidal_positions(5, d_model, layout="halves")
    assert halves.equal(torch.cat([table[:, 0::2], table[:, 1::2]], dim=1))


def test_rounded_once_to_the_type_asked_for() -> None:
    exact = regard.sinusoidal_positions(50, 6)
    for dtype in (torch.float32, torch.bfloat16):
        assert regard.sinusoidal_positions(50, 6, dtype=dtype).equal(exact.to(dtype))


def test_bad_sizes_are_told() -> None:
    with pytest.raises(InputError, match="3 × 0"):
        regard.sinusoidal_positions(3, 0)
    assert regard.sinusoidal_positions(0, 4).shape == (0, 4)


def test_an_unknown_layout_is_told() -> None:
    with pytest.raises(InputError, match="layout 'thirds' is not known; it is one of interleaved, halves"):
        regard.sinusoidal_positions(3, 4, layout="thirds")  # type: ignore[arg-type]


def test_a_default_device_is_kept_to_and_not_remembered() -> None:
    with torch.device("meta"):
        assert regard.sinusoidal_positions(3, 14).device.type == "meta"
    assert regard.sinusoidal_positions(3, 14).device.type == "cpu"
