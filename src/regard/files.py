"""Files: written so that nothing is ever half-written (write beside, flush to the disk, rename), and JSON read."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.errors import ModelError


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path} is missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    except json.JSONDecodeError as error:
        raise ModelError(f"{path} is not JSON: {error.msg} at line {error.lineno}") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds a JSON {type(content).__name__}; an object was expected")
    return content


@contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; it takes the place of `path` once the block has ended well."""
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.writing-{os.getpid()}")
    try:
        yield beside
        _flush_to_disk(beside)
        beside.replace(path)
        _flush_to_disk(path.parent)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def replaced_directory(path: Path) -> Iterator[Path]:
    """Yield a fresh directory that takes the place of `path` once the block has ended well.

    What `path` already holds and the block does not write again is carried over. If the block raises, or the
    machine stops, `path` stays as it was.
    """
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{path.name}.writing-", dir=path.parent))
    try:
        yield beside
        _carry_over(path, beside)
        for file in beside.rglob("*"):
            _flush_to_disk(file)
        _flush_to_disk(beside)
        _swap(beside, path)
        _flush_to_disk(path.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _carry_over(old: Path, new: Path) -> None:
    if not old.is_dir():
        return
    for file in old.rglob("*"):
        copy = new / file.relative_to(old)
        if file.is_dir():
            copy.mkdir(exist_ok=True)
        elif not copy.exists():
            shutil.copy2(file, copy)


def _swap(new: Path, path: Path) -> None:
    # mkdtemp makes directories for their owner alone; a model directory gets the mode any other would get.
    umask = os.umask(0)
    os.umask(umask)
    new.chmod(0o777 & ~umask)
    if not path.exists():
        new.rename(path)
        return
    old = path.with_name(f".{path.name}.replaced-{os.getpid()}")
    path.rename(old)
    new.rename(path)
    shutil.rmtree(old)


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
