"""The command line: one file a verb. torch is imported only when a verb runs."""

import errno
import gc
import io
import os
import sys
from pathlib import Path
from typing import NoReturn

from regard.cli.interrupts import Interrupted, OutputClosed, interruptible
from regard.errors import RegardError
from regard.spinning import adaptive_spinning


def main() -> NoReturn:
    """Run the command line; what goes wrong is one sentence on standard error and an exit code."""
    gc.set_threshold(100_000)  # importing torch makes many objects, none of them garbage to look for
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character is no reason to stop
    try:
        with interruptible(), adaptive_spinning():
            from regard.cli.app import app  # here, where a signal is heard already

            try:
                app()
            finally:
                sys.stdout.flush()  # here, where it can be told if that fails
    except Interrupted as interrupted:
        _report(interrupted)
        sys.exit(interrupted.exit_code)
    except RegardError as error:
        _report(error)
        sys.exit(error.exit_code)
    except (OutputClosed, BrokenPipeError):
        _discard(1)
        sys.exit(0)  # the reader of our output has all it wants, as `head` has
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT) and error.filename is None:
            _discard(1)
            _report(f"standard output cannot be written: {error.strerror}")
        else:
            _report(error)
        sys.exit(1)
    finally:
        gc.freeze()  # nor does an ending process look for garbage among them: half a second with torch
    sys.exit(0)


def _open_closed_streams() -> None:
    """Put the null device in place of standard streams that the caller has closed, which Python has as None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 -- open to the end


def _report(problem: object) -> None:
    try:
        print(f"regard: {problem}", file=sys.stderr)
    except BrokenPipeError:  # nobody reads standard error
        _discard(2)


def _discard(descriptor: int) -> None:
    """Send what is still in the buffer of a standard stream nowhere, so that Python's own last flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
