"""What Python's collector is told while a model trains."""

import gc

import pytest

from regard.memory import older_objects_left_alone


def test_what_is_older_is_left_alone_and_what_is_made_is_not() -> None:
    with older_objects_left_alone():
        assert gc.get_freeze_count() > 10_000
        circle: list[object] = []
        circle.append(circle)
        del circle
        assert gc.collect() >= 1
    assert gc.get_freeze_count() == 0


def test_afterwards_all_is_as_before_whatever_happened() -> None:
    with pytest.raises(KeyboardInterrupt), older_objects_left_alone():
        raise KeyboardInterrupt
    assert gc.get_freeze_count() == 0
