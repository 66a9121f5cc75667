"""SIGTERM and SIGINT: the first asks for a good end, the second ends at once."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from regard.errors import StoppedError

_SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"


class Stop:
    """Whether somebody has asked training to stop, and by which signal."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.after_step = False
        """Whether a signal waits for the end of a step, where the state is saved; else it stops the run at once."""

    def asked(self, number: int, frame: FrameType | None) -> None:
        """Note the first signal; leave at the second."""
        if self.signal is not None:
            terminal = _SHOW_CURSOR if sys.stderr.isatty() else ""
            os.write(2, f"{terminal}regard: stopped at once by signal {number}\n".encode())
            os._exit(128 + number)
        self.signal = number
        if not self.after_step:
            raise StoppedError(number, None)


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
