"""Lines in and out: a line for a line, in order."""

import codecs
import sys
from collections.abc import Iterator

from regard.errors import DataError


def input_lines() -> Iterator[str]:
    """Read standard input. Lines end at a line feed alone; other separators of Unicode's belong to the text."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).rstrip(b"\r\n").decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"standard input, line {number} is not UTF-8: byte {error.start + 1} is wrong") from None


def output_line(text: str) -> None:
    """Write a line to standard output, in UTF-8 whatever the locale."""
    sys.stdout.buffer.write(text.encode() + b"\n")
