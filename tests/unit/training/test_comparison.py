import random
import time

import pytest

from regard.training.comparison import Comparison, compare


def waiting(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_a_difference_is_found() -> None:
    assert compare(lambda: waiting(1e-3), lambda: waiting(1e-2), 3.0).faster
    assert compare(lambda: waiting(1e-2), lambda: waiting(1e-3), 3.0).slower


def test_what_other_programs_take_does_not_count() -> None:
    draw = random.Random(2)

    def disturbed(seconds: float) -> None:
        waiting(seconds + (0.02 if draw.random() < 0.3 else 0.0))

    found = compare(lambda: disturbed(1e-3), lambda: disturbed(2e-3), 5.0)
    assert 1.2 < found.ratio < 4.0


def test_noise_is_no_difference() -> None:
    draw = random.Random(1)
    found = compare(lambda: waiting(draw.uniform(1e-3, 9e-3)), lambda: waiting(draw.uniform(1e-3, 9e-3)), 1.0)
    assert not found.faster
    assert not found.slower
    assert found.text("the other") == "no clear difference from the other"


def test_it_ends_in_time_however_noisy_and_slow_the_work_is() -> None:
    began = time.perf_counter()
    found = compare(lambda: waiting(0.02), lambda: waiting(0.08), 0.1)
    assert time.perf_counter() - began < 3.0
    assert not found.faster, "two rounds prove nothing"


@pytest.mark.parametrize(
    ("ratio", "says"),
    [(0.76, "24 % slower than it"), (1.24, "24 % faster than it"), (2.9, "2.9 times as fast as it")],
)
def test_what_is_clear_is_said_without_a_factor_below_one(ratio: float, says: str) -> None:
    assert Comparison(ratio, 0.99 * ratio, 1.01 * ratio).text("it") == says
