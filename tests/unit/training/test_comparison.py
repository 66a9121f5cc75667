import random
import time

import pytest

from regard.training.comparison import Comparison, compare


def waiting(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_a_difference_is_found() -> None:
    found = compare(lambda: waiting(2e-3), lambda: waiting(6e-3), 5.0)
    assert found.faster
    assert found.ratio == pytest.approx(3.0, rel=0.3)
    assert compare(lambda: waiting(6e-3), lambda: waiting(2e-3), 5.0).slower


def test_what_other_programs_take_does_not_count() -> None:
    draw = random.Random(2)

    def disturbed(seconds: float) -> None:
        waiting(seconds + (0.02 if draw.random() < 0.3 else 0.0))

    found = compare(lambda: disturbed(1e-3), lambda: disturbed(2e-3), 5.0)
    assert found.ratio == pytest.approx(2.0, rel=0.2)


def test_noise_is_no_difference() -> None:
    draw = random.Random(1)
    found = compare(lambda: waiting(draw.uniform(1e-3, 9e-3)), lambda: waiting(draw.uniform(1e-3, 9e-3)), 1.0)
    assert not found.faster
    assert not found.slower
    assert found.text("the other") == "no clear difference from the other"


def test_it_ends_in_time_however_noisy_and_slow_the_work_is() -> None:
    began = time.perf_counter()
    found = compare(lambda: waiting(0.05), lambda: waiting(0.2), 0.3)
    assert time.perf_counter() - began < 3.0
    assert not found.faster, "two rounds prove nothing"


@pytest.mark.parametrize(
    ("ratio", "says"),
    [(0.76, "24 % slower than it"), (1.24, "24 % faster than it"), (2.9, "2.9 times as fast as it")],
)
def test_what_is_clear_is_said_without_a_factor_below_one(ratio: float, says: str) -> None:
    assert Comparison(ratio, 0.99 * ratio, 1.01 * ratio).text("it") == says
