import math
from itertools import pairwise

import pytest

from regard.errors import InputError
from regard.training.schedule import Schedule, learning_rate


def test_the_papers_formula() -> None:
    for step in (1, 100, 3999, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert learning_rate(Schedule(), step, d_model=512, total=1) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["cosine", "linear", "constant"])
def test_up_in_a_line_then_down_to_the_floor(kind: str) -> None:
    schedule = Schedule.model_validate({"kind": kind, "peak": 2.0, "warmup": 10, "floor": 0.25})
    rates = [learning_rate(schedule, step, d_model=1, total=110) for step in range(1, 121)]
    assert rates[:10] == pytest.approx([0.2 * n for n in range(1, 11)])
    assert rates[109] == pytest.approx(2.0 if kind == "constant" else 0.5)
    assert rates[119] == rates[109]
    assert rates[59] == pytest.approx({"cosine": 1.25, "linear": 1.25, "constant": 2.0}[kind])
    assert all(later <= sooner for sooner, later in pairwise(rates[10:]))


def test_no_warmup_and_no_step() -> None:
    assert learning_rate(Schedule(warmup=0, peak=1.0), 4, d_model=1, total=9) == pytest.approx(math.sqrt(1 / 4))
    with pytest.raises(InputError, match="counted from 1"):
        learning_rate(Schedule(), 0, d_model=1, total=1)


def test_a_cooldown_ends_any_schedule_in_a_line_to_zero() -> None:
    plain, cooled = Schedule(warmup=10, peak=1.0), Schedule(warmup=10, peak=1.0, cooldown=20)
    rates = [learning_rate(cooled, step, d_model=16, total=100) for step in range(1, 101)]
    before = [learning_rate(plain, step, d_model=16, total=100) for step in range(1, 101)]
    assert rates[:80] == before[:80]
    assert all(one > other for one, other in pairwise(rates[80:]))
    assert rates[90] == pytest.approx(before[90] * 10 / 21)
    assert 0.0 < rates[-1] < 0.05 * before[-1]
