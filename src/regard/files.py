"""Files: written so that nothing is ever half-written (write beside, flush to the disk, rename), and JSON read."""

import errno
import io
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from regard.errors import ModelError, NoSpaceError, WriteError, shown

_MOST_VALUES = 1_500_000
"""In one file; Python's objects for them take a few hundred bytes each."""
_DEEPEST, _MOST_KEYS = 32, 100


def read_json(path: Path, largest: int = 4 << 20) -> dict[str, Any]:
    """Read a JSON object, in which no key comes twice, from a file of at most `largest` bytes."""
    data = read_bytes(path, largest)
    if sum(map(data.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        raise ModelError(f"{path} has more than {_MOST_VALUES:,} values; that is more than is read")
    try:
        content = json.loads(data.decode("utf-8"), object_pairs_hook=_each_key_once)
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    except json.JSONDecodeError as error:
        raise ModelError(f"{path} is not JSON: {error.msg} at line {error.lineno}") from None
    except (ValueError, RecursionError) as error:  # numbers without end, brackets without end
        raise ModelError(f"{path} is not JSON that can be read: {error}") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds a JSON {type(content).__name__}; an object was expected")
    if _is_deeper(content, _DEEPEST):
        raise ModelError(f"{path} nests values more than {_DEEPEST} deep")
    return content


def check_names(keys: Collection[str], path: Path) -> None:
    """Refuse keys that no configuration has, before each of them becomes a part of a message."""
    if len(keys) > _MOST_KEYS:
        raise ModelError(f"{path} has {len(keys):,} keys where at most {_MOST_KEYS} are known")
    for key in keys:
        if not (key.isidentifier() and len(key) <= 100):
            raise ModelError(f"{path}: {shown(key)} is not a known key")


def read_bytes(path: Path, largest: int) -> bytes:
    """Read a file of at most `largest` bytes, and no more than that even while it grows."""
    check_is_file(path)
    try:
        # Not to wait, if a pipe has taken the file's place since.
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size > largest:
                data = None
            else:
                data = _read_up_to(file, largest + 1)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    if data is None or len(data) > largest:
        raise ModelError(f"{path} is larger than {largest / 2**20:,.0f} MB; such a file is not read")
    return data


def _read_up_to(file: io.FileIO, size: int) -> bytes:
    parts = []
    while size > 0 and (part := file.read(min(size, 1 << 20))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _is_deeper(content: dict[str, Any], depth: int) -> bool:
    level: list[Any] = [content]
    for _ in range(depth):
        level = [
            value
            for outer in level
            for value in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(value, dict | list)
        ]
        if not level:
            return False
    return True


def check_is_file(path: Path) -> None:
    """Refuse what is missing, and what reading might never come to the end of: a pipe, a device."""
    try:
        if not path.exists():
            raise ModelError(f"{'' if len(path.parts) > 1 else './'}{path} is missing")
        if not path.is_file():
            raise ModelError(
                f"{path} is {'a directory' if path.is_dir() else 'a device or a pipe'}; a file was expected"
            )
    except (OSError, ValueError) as error:  # a name that no file can have
        raise ModelError(f"{path} cannot be read: {error}") from None


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        twice = max(Counter(key for key, _ in pairs).items(), key=itemgetter(1))[0]
        raise ValueError(f"the key {shown(twice)} comes twice")
    return content


@contextmanager
def writing(path: Path, beside: Path | None = None) -> Iterator[None]:
    """Write `path` in this block, perhaps under the name `beside`; what fails is a `WriteError` that names `path`."""
    try:
        yield
    except WriteError as error:
        if beside is not None and error.path.is_relative_to(beside):
            raise type(error)(path / error.path.relative_to(beside), error.reason) from None
        raise
    except (OSError, SafetensorError) as error:
        raise WriteError(path, _reason(error)) from None


def real_path(path: Path) -> Path:
    """Return a path without links; a link that leads to itself stays one, where `Path.resolve` raises an error."""
    return Path(os.path.realpath(path))


@contextmanager
def directory_made(path: Path) -> Iterator[None]:
    """Make a directory and its parents; those that were not there are removed if this block fails, unless in use."""
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    try:
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for parent in missing:
            with suppress(OSError):  # it holds something
                parent.rmdir()
        raise


@contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; it takes the place of `path` once the block has ended well.

    A link stays one: the file that it leads to is replaced. Devices and pipes are refused.
    """
    with writing(path):
        if path.exists() and not path.is_file() and not path.is_dir():
            raise WriteError(path, "it is a device or a pipe, not a file")
    final = real_path(path)
    beside = final.with_name(f".{final.name}.writing-{os.getpid()}")
    with writing(path, beside), directory_made(final.parent):
        try:
            yield beside
            _finish(beside)
            beside.replace(final)
            _flush_to_disk(final.parent)
        finally:
            beside.unlink(missing_ok=True)


@contextmanager
def replaced_files(directory: Path, *, last: str) -> Iterator[Path]:
    """Yield an empty directory; what is written there takes its place in `directory` once the block has ended well.

    Every file is whole and on the disk before the first one is put in its place, and `last` comes last: without it the
    directory counts as incomplete. Other files in `directory` are left alone.
    """
    final = real_path(directory)
    with writing(directory), directory_made(final):
        beside = Path(tempfile.mkdtemp(prefix=".writing-", dir=final))
        try:
            yield beside
            written = sorted(beside.iterdir(), key=lambda file: file.name == last)
            for file in written:
                _finish(file)
            for file in written:
                file.replace(final / file.name)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        _flush_to_disk(final)


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Yield a directory that becomes `path`, which is not there yet, once the block has ended well."""
    final = real_path(path)
    with writing(path), directory_made(final.parent):
        beside = Path(tempfile.mkdtemp(prefix=f".{path.name}.writing-", dir=final.parent))
        try:
            with writing(path, beside):
                yield beside
            for file in beside.iterdir():
                _finish(file)
            _finish(beside)
            beside.rename(final)
            _flush_to_disk(final.parent)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


@contextmanager
def space_for(size: int, directory: Path) -> Iterator[None]:
    """Write so many bytes in this block; if they do not fit on the disk, say how much is needed."""
    free = shutil.disk_usage(directory).free
    reason = f"the disk has {free / 1e6:,.1f} MB free; {size / 1e6:,.1f} MB are needed"
    if free < size:
        raise NoSpaceError(directory, reason)
    try:
        yield
    except (OSError, SafetensorError) as error:
        if _errno(error) == errno.ENOSPC:
            raise NoSpaceError(directory, reason) from None
        raise


def _errno(error: OSError | SafetensorError) -> int | None:
    """Return the number of the system's error; safetensors has it in its text alone."""
    if isinstance(error, OSError):
        return error.errno
    found = re.search(r"\(os error (\d+)\)", str(error))
    return int(found[1]) if found else None


def _reason(error: OSError | SafetensorError) -> str:
    number = _errno(error)
    if number is None:
        return str(error)
    hint = " (see `ulimit -f`)" if number == errno.EFBIG else ""
    return os.strerror(number) + hint


def _finish(path: Path) -> None:
    """Give a temporary file the permissions of a new one."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)
    _flush_to_disk(path)


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
