"""Whose a directory is: one run's, and one process's at a time."""

import errno
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.errors import ConfigError, ModelError
from regard.files import read_json, replaced_file
from regard.text.tokenizer import SOURCE_TOKENIZER, TOKENIZER
from regard.training.recipe import Run

try:
    import fcntl
except ImportError:  # a system without such locks
    fcntl = None  # type: ignore[assignment]

RUN_FILE, LOCK_FILE = "run.json", ".lock"

# What may be another when a run is resumed: how long it goes, what is kept and shown, how it is computed.
_FREE = {
    "data": {"cache"},
    "schedule": {"cooldown"},
    "training": {"start_from", "steps", "epochs", "threads", "workers", "report_every", "sharded"},
    "checkpoints": {"every", "keep"},
    "validation": {"patience"},
}


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Let no other process train in a directory during this block. The lock goes with the process that has it."""
    if fcntl is None:
        yield
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / LOCK_FILE).open("w")
    except OSError as error:
        raise ModelError(f"{out} cannot be written to: {error.strerror}") from None
    with lock:
        try:
            # Of this kind because it is not handed down to workers, which may live a little longer.
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise ConfigError(f"another process is training in {out}; choose another directory") from None
        try:
            yield
        finally:
            (out / LOCK_FILE).unlink(missing_ok=True)


@contextmanager
def claimed(out: Path, run: Run) -> Iterator[None]:
    """Make the directory this run's, unless it is another's; if this block fails, it is again whose it was before."""
    path = out / RUN_FILE
    before = _checked(path, run)
    there = [name for name in (TOKENIZER, SOURCE_TOKENIZER) if (out / name).exists()]
    _write(path, json.dumps(run.model_dump(mode="json"), indent=1) + "\n")
    try:
        yield
    except BaseException:
        if before is not None:
            _write(path, before)
        else:
            for name in {RUN_FILE, TOKENIZER, SOURCE_TOKENIZER}.difference(there):
                (out / name).unlink(missing_ok=True)
        raise


def _checked(path: Path, run: Run) -> str | None:
    """Give what the run's file held before, if there was one, and it was this run's."""
    out = path.parent
    if not path.exists():
        if (out / "config.json").exists():
            raise ConfigError(f"{out} holds a model that no run made; choose another directory with --out")
        return None
    before = read_json(path)
    try:
        fixed = _fixed(before)
    except (AttributeError, TypeError):
        raise ModelError(f"{path} is not what a run writes; choose another directory with --out") from None
    if change := _difference(fixed, _fixed(run.model_dump(mode="json"))):
        raise ConfigError(f"{out} was made by another run: {change}; choose another directory with --out")
    return path.read_text(encoding="utf-8")


def _write(path: Path, text: str) -> None:
    try:
        with replaced_file(path) as fresh:
            fresh.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ModelError(f"{path.parent} cannot be written to: {error.strerror}") from None


def _fixed(content: dict[str, Any]) -> dict[str, Any]:
    """Leave out what may change: free fields, and where files are, for their content is compared by itself."""
    kept: dict[str, Any] = {}
    for section, fields in content.items():
        free = set(_FREE.get(section, ()))
        if section == "training" and content.get("schedule", {}).get("kind") in ("cosine", "linear"):
            free -= {"steps", "epochs"}  # their rates depend on where the run ends
        if section == "data":
            sides = {side: [_placeless(corpus) for corpus in fields.get(side, [])] for side in ("train", "valid")}
            fields = {**fields, **sides}
        if section == "tokenizer":
            fields = _placeless(fields)
        kept[section] = {key: value for key, value in fields.items() if key not in free}
    return kept


def _placeless(corpus: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in corpus.items() if key not in ("path", "source", "target")}


def _difference(before: Any, now: Any, path: str = "") -> str | None:
    """Name the first key whose value is another."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            if found := _difference(before.get(key), now.get(key), f"{path}.{key}" if path else key):
                return found
        return None
    return None if before == now else f"{path} was {before!r} there and is {now!r} here"
