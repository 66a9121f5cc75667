"""What Python's collector is told while a model trains."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from regard.memory import older_objects_left_alone


class Circle:
    """Garbage that only the collector finds, once nobody else knows it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def nothing_frozen() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_what_is_older_waits_and_what_is_made_does_not() -> None:
    old = Circle()
    of_old = weakref.ref(old)
    with older_objects_left_alone():
        new = Circle()
        of_new = weakref.ref(new)
        del old, new
        gc.collect()
        assert of_new() is None
        assert of_old() is not None
    gc.collect()
    assert of_old() is None


def test_afterwards_all_is_as_before_whatever_happened() -> None:
    with pytest.raises(KeyboardInterrupt), older_objects_left_alone():
        raise KeyboardInterrupt
    assert gc.get_freeze_count() == 0


def test_what_others_have_frozen_stays_so() -> None:
    with older_objects_left_alone():
        with older_objects_left_alone():
            pass
        assert gc.get_freeze_count() > 0
    gc.freeze()
    with older_objects_left_alone():
        pass
    assert gc.get_freeze_count() > 0
