"""Files that are replaced whole or not at all."""

import os
from pathlib import Path

import pytest

from regard.errors import WriteError
from regard.files import replaced_file


def test_a_file_is_replaced_once_the_block_has_ended_well(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with replaced_file(path) as fresh:
        fresh.write_text("one")
        assert not path.exists()
    writing = replaced_file(path)
    writing.__enter__().write_text("two")
    assert writing.__exit__(KeyError, KeyError(), None) is not True
    assert path.read_text() == "one"
    assert list(path.parent.iterdir()) == [path]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("one")
    (tmp_path / "link").symlink_to("file")
    with replaced_file(tmp_path / "link") as fresh:
        fresh.write_text("two")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "two"


def test_a_link_that_leads_to_itself_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with replaced_file(tmp_path / "loop") as fresh:
        fresh.write_text("one")
    assert (tmp_path / "loop").read_text() == "one"


def test_a_name_that_no_file_can_have_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(WriteError, match="xxx cannot be written: File name too long"),
        replaced_file(tmp_path / ("x" * 300)),
    ):
        pass


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (
        pytest.raises(WriteError, match="pipe cannot be written: it is a device or a pipe, not a file"),
        replaced_file(tmp_path / "pipe"),
    ):
        pass
    assert (tmp_path / "pipe").is_fifo()
