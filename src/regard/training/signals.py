"""SIGTERM and SIGINT: the first asks for a good end, the second ends at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether somebody has asked training to stop, and by which signal."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def asked(self, number: int, frame: FrameType | None) -> None:
        """Note the first signal; leave at the second."""
        if self.signal is not None:
            os._exit(128 + number)
        self.signal = number


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Catch both signals in this block; afterwards they do again what they did before."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # Python lets the main thread alone do this
        yield stop
        return
    before = {number: signal.signal(number, stop.asked) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
