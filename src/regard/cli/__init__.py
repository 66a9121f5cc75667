"""The command line: one file a verb. torch is imported only when a verb runs."""

import errno
import gc
import io
import os
import sys
from typing import NoReturn

from regard.cli.interrupts import Interrupted, interruptible
from regard.errors import RegardError
from regard.spinning import adaptive_spinning


def main() -> NoReturn:
    """Run the command line; what goes wrong is one sentence on standard error and an exit code."""
    gc.set_threshold(100_000)  # importing torch makes many objects, none of them garbage to look for
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
        print(f"regard: {interrupted}", file=sys.stderr)
        sys.exit(interrupted.exit_code)
    except RegardError as error:
        print(f"regard: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; there is nobody to tell
        sys.exit(0)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT) and error.filename is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still in its buffer has nowhere to go
            print(f"regard: standard output cannot be written: {error.strerror}", file=sys.stderr)
        else:
            print(f"regard: {error}", file=sys.stderr)
        sys.exit(1)
    finally:
        gc.freeze()  # nor does an ending process look for garbage among them: half a second with torch
    sys.exit(0)
