"""Training state on disk: safetensors and JSON, each directory whole or not there, told by its hashes.

    checkpoints/step-000500/manifest.json     the hash of every other file
                            state.json        step, position in the data, scores, what it ran on
                            weights-0-of-1.safetensors, moments-0-of-1.safetensors

Where many processes share the weights, each writes its own part: some rows of every tensor, in the processes' order.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard.errors import ModelError
from regard.files import new_directory, read_json, space_for

FORMAT = 1
MANIFEST, STATE = "manifest.json", "state.json"
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """A training state read from disk, all hashes verified."""

    path: Path
    state: dict[str, Any]
    tensors: dict[str, Tensors]
    """By kind: weights, moments, the running average and the state of a loss scaler where there is one."""


def step_of(path: Path) -> int:
    """Read the step off the name of a checkpoint or a snapshot."""
    number = path.name.removeprefix("step-")
    return int(number) if number.isascii() and number.isdigit() else -1


def step_directories(parent: Path) -> list[Path]:
    """List the directories of steps, oldest first."""
    return sorted((path for path in parent.glob("step-*") if step_of(path) >= 0 and path.is_dir()), key=step_of)


def step_name(step: int) -> str:
    """Return the name of the directory of a step, so that names sort as steps do."""
    return f"step-{step:07d}"


def write_checkpoint(parent: Path, step: int, state: Mapping[str, Any], tensors: Mapping[str, Tensors]) -> Path:
    """Write the state of a single process, or of many that each have all of it."""
    path = parent / step_name(step)
    with new_directory(path) as fresh:
        files = write_parts(fresh, tensors, rank=0, processes=1)
        finish(fresh, state, files)
    return path


def write_parts(fresh: Path, tensors: Mapping[str, Tensors], *, rank: int, processes: int) -> dict[str, str]:
    """Write one process's part of the tensors; give the hash of each file."""
    needed = sum(tensor.numel() * tensor.element_size() for part in tensors.values() for tensor in part.values())
    hashes = {}
    with space_for(needed, fresh):
        for kind, part in tensors.items():
            name = f"{kind}-{rank}-of-{processes}.safetensors"
            save_file(_plain(part), fresh / name)
            hashes[name] = _hash(fresh / name)
    return hashes


def finish(fresh: Path, state: Mapping[str, Any], files: Mapping[str, str]) -> None:
    """Write the JSON files; with them, the directory is complete."""
    text = json.dumps(state, indent=1) + "\n"
    (fresh / STATE).write_text(text, encoding="utf-8")
    hashes = {**files, STATE: hashlib.sha256(text.encode()).hexdigest()}
    content = {"format": FORMAT, "files": hashes}
    (fresh / MANIFEST).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint whose hashes all match, or raise a `ModelError` that says what does not."""
    manifest = read_json(path / MANIFEST)
    if manifest.get("format") != FORMAT or not isinstance(manifest.get("files"), dict):
        raise ModelError(f"{path / MANIFEST} is of format {manifest.get('format')!r}; this version reads {FORMAT}")
    for name, expected in manifest["files"].items():
        _check_hash(path / name, expected)
    state = read_json(path / STATE)
    parts: dict[str, list[Tensors]] = {}
    for name in sorted(manifest["files"], key=_part_number):
        if name.endswith(".safetensors"):
            parts.setdefault(name.split("-")[0], []).append(_load(path / name))
    return Checkpoint(path, state, {kind: _joined(pieces) for kind, pieces in parts.items()})


def newest_whole(parent: Path, tell: Callable[[str], None]) -> Checkpoint | None:
    """Return the newest checkpoint that is whole; say which ones are passed over, and why."""
    directories = step_directories(parent)
    for path in reversed(directories):
        try:
            return read_checkpoint(path)
        except ModelError as error:
            tell(f"{error}; the checkpoint before it is tried")
    if directories:
        raise ModelError(f"{parent}: none of its {len(directories)} checkpoints is whole")
    return None


def prune(parent: Path, keep: int, also: frozenset[int] = frozenset()) -> None:
    """Remove all but the newest directories, and those of the steps in `also`."""
    for path in step_directories(parent)[:-keep]:
        if step_of(path) not in also:
            shutil.rmtree(path, ignore_errors=True)


def remove_after(parent: Path, step: int) -> None:
    """Remove the directories of later steps: what a run made after the state that it now goes on from."""
    for path in step_directories(parent):
        if step_of(path) > step:
            shutil.rmtree(path, ignore_errors=True)


def remove_unfinished(parent: Path) -> None:
    """Remove what a killed process was in the middle of writing."""
    for path in parent.glob(".step-*.writing-*"):
        shutil.rmtree(path, ignore_errors=True)


def _check_hash(path: Path, expected: object) -> None:
    try:
        found = _hash(path)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
    if found != expected:
        raise ModelError(f"{path} is not what was written: its hash is another one than the manifest's")


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _load(path: Path) -> Tensors:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} is not a safetensors file: {error}") from None


def _part_number(name: str) -> tuple[str, int]:
    kind, _, rest = name.partition("-")
    number = rest.split("-")[0]
    return kind, int(number) if number.isdigit() else 0


def _joined(pieces: list[Tensors]) -> Tensors:
    """Join the parts of many processes: each holds some rows of every tensor, in the order of the processes.

    What is not shared out by rows (a single number) is the same in all of them.
    """
    if len(pieces) == 1:
        return pieces[0]
    return {
        name: torch.cat([piece[name] for piece in pieces if piece[name].numel()]) if pieces[0][name].dim() else tensor
        for name, tensor in pieces[0].items()
    }


def _plain(part: Tensors) -> Tensors:
    return {name: tensor.detach().contiguous().cpu() for name, tensor in part.items()}
