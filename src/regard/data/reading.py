"""Text files, plain or gzip: their lines, the whole of them, JSON, and those that match a pattern."""

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.errors import DataError


def matching_files(path: Path) -> list[Path]:
    """Return the files that a pattern such as `*_train.txt` matches, 2 before 10; a path without one is itself."""
    if path.exists() or not any(sign in path.name for sign in "*?["):
        return [path]
    found = sorted(path.parent.glob(path.name), key=_natural_order)
    if not found:
        raise DataError(f"{path} matches no file")
    return found


def _natural_order(path: Path) -> list[tuple[str, int]]:
    return [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", path.name)]


def parsed_json(text: str, place: str) -> Any:
    """Return what a JSON text holds; what is wrong with it is told by its place."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = f" at line {error.lineno}" if "\n" in text else ""
        raise DataError(f"{place} is not JSON: {error.msg}{line}") from None
    except (ValueError, RecursionError) as error:  # numbers without end, brackets without end
        raise DataError(f"{place} is not JSON that can be read: {error}") from None


def read_text(path: Path) -> str:
    """Read a text file whole; its lines end in \\n, and the last one in nothing."""
    return "\n".join(read_lines(path))


def check_read_twice(path: Path) -> None:
    """Raise a `DataError` for a pipe or a device, which is empty when it is read again."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DataError(f"{path} is not a file that can be read twice; save its content to a file first")


def read_lines(path: Path) -> Iterator[str]:
    """Read the lines of a text file without their ends; gzip is known by its first bytes, not by a name."""
    number = 0  # of the last line that was read whole
    try:
        with path.open("rb") as raw:  # once only: what is read of a pipe is gone
            compressed = raw.peek(2)[:2] == b"\x1f\x8b"
            # Lines end at \n alone: other separators of Unicode's belong to the text, and would shift parallel files.
            for line in gzip.GzipFile(fileobj=raw) if compressed else raw:
                if number == 0:
                    line = line.removeprefix(codecs.BOM_UTF8)  # some editors mark a file so; it is no text
                yield line.rstrip(b"\r\n").decode("utf-8")
                number += 1
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a directory; a file was expected") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, line {number + 1} is not UTF-8: byte {error.start + 1} is wrong") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read after line {number}: {error}") from None
