"""SIGINT and SIGTERM on the command line: what is open is closed, and one line says why it ended."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(BaseException):
    """A signal that ends a command; not an `Exception`, which code on the way might catch."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by signal {number}")
        self.exit_code = 128 + number


@contextmanager
def interruptible() -> Iterator[None]:
    """End this block with an `Interrupted` at the first signal, and the process at the second."""
    if threading.current_thread() is not threading.main_thread():  # Python lets the main thread alone do this
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heard = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]

    def leave(number: int, frame: FrameType | None) -> None:
        os._exit(128 + number)

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in heard:
            signal.signal(each, leave)
        raise Interrupted(number)

    try:
        for number in heard:
            signal.signal(number, interrupt)
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])
