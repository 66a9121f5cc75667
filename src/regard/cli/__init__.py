"""The command line: one file a verb. torch is imported only when a verb runs."""

import gc
import io
import sys
from typing import NoReturn

from regard.cli.app import app
from regard.errors import RegardError


def main() -> NoReturn:
    """Run the command line; what goes wrong is one sentence on standard error and an exit code."""
    gc.set_threshold(100_000)  # importing torch makes many objects, none of them garbage to look for
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character is no reason to stop
    try:
        app()
    except RegardError as error:
        print(f"regard: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; there is nobody to tell
        sys.exit(0)
    except OSError as error:
        print(f"regard: {error}", file=sys.stderr)
        sys.exit(1)
    finally:
        gc.freeze()  # nor does an ending process look for garbage among them: half a second with torch
    sys.exit(0)
