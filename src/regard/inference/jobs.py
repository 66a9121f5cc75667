"""File jobs: resumable; the output file appears when it is complete."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from regard.data.reading import check_read_twice, read_lines
from regard.errors import DataError, InputError
from regard.files import directory_made, read_json, replaced_file, writing


@dataclass(frozen=True)
class Shard:
    """One of n parts of the lines of a file; the parts one after the other are the file."""

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Read "2/8".

        >>> Shard.parse("2/8").of(100)
        range(12, 25)
        """
        number, slash, count = text.partition("/")
        if not slash or not number.isdecimal() or not count.isdecimal() or not 1 <= int(number) <= int(count):
            raise InputError(f"shard {text!r} is not of the form i/n with i from 1 to n")
        return cls(int(number), int(count))

    def of(self, lines: int) -> range:
        """Return the lines, counted from 0, that belong to this part."""
        return range((self.number - 1) * lines // self.count, self.number * lines // self.count)


def count_lines(path: Path) -> tuple[int, str]:
    """Count the lines of a file; give what tells its content from another's, too."""
    check_read_twice(path)
    digest = hashlib.sha256()
    count = 0
    for line in read_lines(path):
        count += 1
        digest.update(line.encode() + b"\n")
    if not count:
        raise DataError(f"{path} is empty; it has no lines to work on")
    return count, digest.hexdigest()


class PartialFile:
    """What a job has written so far, and how many of its lines that stands for."""

    def __init__(self, file: IO[bytes], state: Path, job: dict[str, Any], done: int) -> None:
        self._file, self._state, self._job = file, state, job
        self.done = done

    def add(self, text: str, lines: int) -> None:
        """Write what so many lines have become; after a stop it counts as done."""
        with writing(Path(self._file.name)):
            self._file.write(text.encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        self.done += lines
        content = {"job": self._job, "lines": self.done, "bytes": self._file.tell()}
        with replaced_file(self._state) as fresh:
            fresh.write_text(json.dumps(content) + "\n", encoding="utf-8")


@contextmanager
def resumable(output: Path, job: dict[str, Any]) -> Iterator[PartialFile]:
    """Yield a file beside `output` to write to; it becomes `output` once the block has ended well.

    If the block does not, what was written stays in OUTPUT.partial, and the same job goes on from there.
    """
    if output.is_dir():
        raise InputError(f"{output} is a directory; the output is a file")
    if output.exists() and not output.is_file():
        raise InputError(f"{output} is not a file, and the output takes the place of one when it is whole")
    partial, state = (output.with_name(output.name + end) for end in (".partial", ".partial.json"))
    done, size = _done(partial, state, job)
    if not done:
        state.unlink(missing_ok=True)
    with directory_made(output.parent):
        with writing(partial):
            file = partial.open("r+b" if done else "wb")
            file.truncate(size)
            file.seek(size)
        try:
            try:
                yield PartialFile(file, state, job, done)
            finally:
                with suppress(OSError):  # what was added is on the disk, or was reported
                    file.close()
            with writing(output):
                partial.replace(output)
        except BaseException:
            if not state.exists():  # not a line is done
                partial.unlink(missing_ok=True)
            raise
        state.unlink(missing_ok=True)


def _done(partial: Path, state: Path, job: dict[str, Any]) -> tuple[int, int]:
    """Return how many lines of a job are done already, and how many bytes they have become."""
    if not state.exists() or not partial.exists():
        return 0, 0
    found = read_json(state)
    if found.get("job") != job:
        raise InputError(f"{partial} is of another job (model, input or options); remove it and {state} to start anew")
    lines, size = found.get("lines"), found.get("bytes")
    if not isinstance(lines, int) or not isinstance(size, int) or partial.stat().st_size < size:
        return 0, 0
    return lines, size
