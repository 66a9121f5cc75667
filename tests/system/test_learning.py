"""The model learns."""

import time

from examples.reverse import exact_match, learn


def test_reversing_a_sequence_is_learned_in_a_minute() -> None:
    started = time.perf_counter()
    model = learn()
    assert exact_match(model) > 0.99
    assert time.perf_counter() - started < 60
