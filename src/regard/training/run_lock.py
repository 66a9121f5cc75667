"""Locks of run directories: one run per directory, one process at a time."""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from regard.data.corpora import with_current_names
from regard.errors import ConfigError, ModelError, WriteError
from regard.files import directory_made, read_json, replaced_file, writing
from regard.model.directory import CHECKPOINTS, CONFIG_FILE, SNAPSHOTS
from regard.tasks.directory import DEFAULT_TASKS
from regard.training.callbacks import METRICS
from regard.training.checkpoints import step_of
from regard.training.preparation import Tell
from regard.training.recipe import Run, current_softmax_gradient

try:
    import fcntl
except ImportError:  # a system without such locks
    fcntl = None  # type: ignore[assignment]

RUN_FILE, LOCK_FILE = "run.json", ".lock"
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
"""What locking says on a file system that has no locks, such as some network ones."""

# What may be another when a run is resumed: how long it goes, what is kept and shown, how it is computed.
_FREE = {
    "data": {"cache"},
    "schedule": {"cooldown"},
    "training": {"start_from", "steps", "epochs", "device", "compile", "threads", "workers", "report_every", "sharded"},
    "checkpoints": {"every", "keep"},
    "validation": {"patience"},
}


@contextmanager
def locked(out: Path, tell: Tell) -> Iterator[None]:
    """Make a directory if it is not there, and let no other process train in it during this block.

    The lock goes with the process that has it. If the block fails, a directory that was made and is empty goes again.
    """
    with directory_made(out.absolute()), _lock_file(out / LOCK_FILE) as has_lock:
        if not has_lock:
            tell(f"{out} cannot be locked on this file system: let no other process train there")
        yield


@contextmanager
def _lock_file(path: Path) -> Iterator[bool]:
    """Hold the lock of a file, which is there as long as it is locked; yield False where the system has no locks."""
    with writing(path):
        file = None if fcntl is None else _locked(path)
    try:
        yield file is not None
    finally:
        if file is not None:
            path.unlink(missing_ok=True)  # still locked: whoever has opened it will see that it is gone
            file.close()


def _locked(path: Path) -> IO[str] | None:
    """Open a file and lock it; None where that cannot be done on its file system."""
    while True:
        new = not path.exists()
        file = path.open("w")
        try:
            # Of this kind because it is not handed down to workers, which may live a little longer.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise ConfigError(f"another process is training in {path.parent}; choose another directory") from None
            if new:
                path.unlink(missing_ok=True)
            if error.errno in _NO_LOCKS:
                return None
            raise
        if _is_at(path, file):
            return file
        file.close()  # the process that had it before has removed it: the lock would be one that nobody else sees


def _is_at(path: Path, file: IO[str]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


@contextmanager
def owned(out: Path, run: Run) -> Iterator[None]:
    """Make the directory this run's, unless it is another's.

    If this block fails before it has saved a state, the directory holds again what it held before.
    """
    _check_is_this_runs(out, run)
    entries, contents = _entries(out), {name: _content(out / name) for name in (RUN_FILE, METRICS)}
    try:
        with replaced_file(out / RUN_FILE) as fresh:
            fresh.write_text(json.dumps(run.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8")
        yield
    except BaseException:
        new = _entries(out) - entries
        if not any(path.parent.name == CHECKPOINTS and step_of(path) >= 0 for path in new):
            for path in new:
                _remove(path)
            for name, content in contents.items():
                _restore(out / name, content)
        raise


def _entries(out: Path) -> set[Path]:
    """List what a directory holds, and what the directories in it hold that a run writes step by step."""
    found = {path for place in (out, out / CHECKPOINTS, out / SNAPSHOTS) if place.is_dir() for path in place.iterdir()}
    return found - {out / LOCK_FILE}


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _restore(path: Path, content: bytes | None) -> None:
    if content is not None and _content(path) != content:
        with suppress(WriteError), replaced_file(path) as fresh:  # what made the block fail is the error to report
            fresh.write_bytes(content)


def _check_is_this_runs(out: Path, run: Run) -> None:
    path = out / RUN_FILE
    if not path.exists():
        if (out / CONFIG_FILE).exists():
            raise ConfigError(f"{out} holds a model that no run made; choose another directory with --out")
        return
    before = read_json(path)
    try:
        fixed = _fixed(before)
    except (AttributeError, TypeError):
        raise ModelError(f"{path} is not what a run writes; choose another directory with --out") from None
    if change := _difference(fixed, _fixed(run.model_dump(mode="json"))):
        raise ConfigError(f"{out} was made by another run: {change}; choose another directory with --out")


def _fixed(content: dict[str, Any]) -> dict[str, Any]:
    """Leave out what may change: free fields, and where files are, for their content is compared by itself."""
    kept: dict[str, Any] = {"task": content.get("task", [task.model_dump(mode="json") for task in DEFAULT_TASKS])}
    for section, fields in content.items():
        if section == "task":
            continue
        free = set(_FREE.get(section, ()))
        if section == "training" and content.get("schedule", {}).get("kind") in ("cosine", "linear"):
            free -= {"steps", "epochs"}  # their rates depend on where the run ends
        if section == "data":
            sides = {side: [_placeless(corpus) for corpus in fields.get(side, [])] for side in ("train", "valid")}
            fields = {**fields, **sides}
        if section == "tokenizer":
            fields = _placeless(fields)
        if "softmax_gradient" in fields:
            fields = {**fields, "softmax_gradient": current_softmax_gradient(fields["softmax_gradient"])}
        kept[section] = {key: value for key, value in fields.items() if key not in free}
    return kept


def _placeless(corpus: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in with_current_names(corpus).items() if key not in ("path", "source", "target")}


def _difference(before: Any, now: Any, path: str = "") -> str | None:
    """Return the first key whose value is another, with both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            if found := _difference(before.get(key), now.get(key), f"{path}.{key}" if path else key):
                return found
        return None
    return None if before == now else f"{path} was {before!r} there and is {now!r} here"
