"""Lines in and out: a line for a line, in order."""

import codecs
import sys
from collections.abc import Iterator

from regard.errors import DataError


def input_lines() -> Iterator[str]:
    """Read standard input. Lines end at a line feed alone; other separators of Unicode's belong to the text."""
    number = 0  # of the last line that was read whole
    try:
        for line in sys.stdin.buffer:
            yield (line.removeprefix(codecs.BOM_UTF8) if number == 0 else line).rstrip(b"\r\n").decode("utf-8")
            number += 1
    except UnicodeDecodeError as error:
        raise DataError(f"standard input, line {number + 1} is not UTF-8: byte {error.start + 1} is wrong") from None
    except OSError as error:  # such as a directory
        raise DataError(f"standard input cannot be read after line {number}: {error.strerror}") from None


def whole_input(name: str) -> str:
    """Read all of standard input as one text, which is called by a name where there is none."""
    text = "\n".join(input_lines())
    if not text.strip():
        raise DataError(f"standard input is empty; {name} was expected")
    return text


def output_line(text: str) -> None:
    """Write a line to standard output, in UTF-8 whatever the locale."""
    sys.stdout.buffer.write(text.encode() + b"\n")
