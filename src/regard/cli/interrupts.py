"""What ends a command from outside: SIGINT, SIGTERM and a reader that has gone. What is open is closed."""

import os
import select
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


class OutputClosed(Exception):  # noqa: N818 -- it is no error
    """A command's output that nobody reads any more; not an `OSError`, which typer would take for a failure."""


def is_closed_pipe(descriptor: int) -> bool:
    """Whether nobody reads the pipe that a file descriptor writes to."""
    poll = select.poll()
    poll.register(descriptor, 0)  # errors are reported unasked
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


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
