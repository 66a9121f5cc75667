"""Text files as they are read: once, from the first byte to the last, whatever they are."""

import gzip
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli.app import app
from regard.data.reading import read_lines, read_text
from regard.data.squad import Squad
from regard.errors import DataError

LINES = [f"line {number} of many, with ü" for number in range(2000)]
TEXT = "".join(f"{line}\n" for line in LINES).encode()


def stored(content: bytes) -> bytes:
    """Return gzip that is no shorter than its content."""
    return gzip.compress(content, compresslevel=0)


@contextmanager
def fifo(path: Path, content: bytes) -> Iterator[Path]:
    """Yield a named pipe that another thread writes to."""
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(content,))
    writer.start()
    try:
        yield path
    finally:
        writer.join(timeout=30)
    assert not writer.is_alive()


@pytest.mark.parametrize("packed", [bytes, stored, gzip.compress])
def test_a_pipe_is_read_from_its_first_line(tmp_path: Path, packed: Callable[[bytes], bytes]) -> None:
    assert len(TEXT) > 50_000
    with fifo(tmp_path / "pipe", packed(TEXT)) as path:
        assert list(read_lines(path)) == LINES


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
@pytest.mark.parametrize("content", [b"", b"a", "\ufeffü\n".encode()])
def test_a_pipe_may_have_little_in_it(tmp_path: Path, content: bytes, packed: Callable[[bytes], bytes]) -> None:
    with fifo(tmp_path / "pipe", packed(content)) as path:
        assert read_text(path) == content.decode("utf-8-sig").rstrip("\n")


def test_what_is_read_twice_may_not_be_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    says = f"{path} is not a file that can be read twice; save its content to a file first"
    arguments = ["data", "split", str(path), "--out", str(tmp_path / "out"), "--fields", "document,summary"]
    refused = CliRunner().invoke(app, arguments)
    assert isinstance(refused.exception, DataError)
    assert str(refused.exception) == says
    with pytest.raises(DataError) as error:
        Squad(path=path).examples(("question", "context", "answers"))
    assert str(error.value) == says
    assert [file.name for file in tmp_path.iterdir()] == ["pipe"]
