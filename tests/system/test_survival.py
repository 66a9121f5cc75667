"""A run that is killed, at any moment and at any write, ends with the weights of one that was not."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from regard.model import directory as model_directory
from regard.training import checkpoints, train
from tests.unit.training.runs import small_run

KILLED = -signal.SIGKILL


def in_a_child(action: Callable[[], object]) -> int:
    """Start an action in a process of its own, which shares nothing but the disk."""
    child = os.fork()
    if child:
        return child
    try:
        action()
        os._exit(0)
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)


def exit_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def assert_same_model(one: Path, other: Path) -> None:
    first, second = (load_file(path / "model.safetensors") for path in (one, other))
    assert all(first[name].equal(second[name]) for name in first)


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_random_moments(tmp_path: Path, kills: int) -> None:
    changes = ("training.steps=60", "training.subword_dropout=0.1", "training.accumulate=2", "training.workers=1")
    run = small_run(tmp_path, *changes, "averaging.kind=running")
    began = time.perf_counter()
    assert exit_of(in_a_child(lambda: train(run, tmp_path / "whole"))) == 0
    longest = time.perf_counter() - began
    moments = random.Random(1)
    killed = 0
    while killed < kills:
        child = in_a_child(lambda: train(run, tmp_path / "cut"))
        time.sleep(moments.uniform(0.1, 0.7) * longest)
        os.kill(child, signal.SIGKILL)
        if exit_of(child) == 0:  # it was quicker: begin again
            shutil.rmtree(tmp_path / "cut")
        else:
            killed += 1
    assert exit_of(in_a_child(lambda: train(run, tmp_path / "cut"))) == 0
    assert_same_model(tmp_path / "whole", tmp_path / "cut")


class Faults:
    """Counts what changes the disk, and dies at one of the changes: before it, or half-way through a file."""

    def __init__(self, deadly: int = 0) -> None:
        self.count, self._deadly = 0, deadly

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "rename"), (shutil, "rmtree"), (Path, "mkdir")):
            self._wrap(monkeypatch, owner, name, None)
        self._wrap(monkeypatch, Path, "write_text", _half_of_text)
        for module in (checkpoints, model_directory):
            self._wrap(monkeypatch, module, "save_file", _half_of_tensors)

    def _wrap(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, half: Callable[..., Any] | None) -> None:
        real = getattr(owner, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == self._deadly:
                if half is not None:
                    half(real, *arguments, **options)
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        monkeypatch.setattr(owner, name, counted)


def _half_of_text(real: Callable[..., Any], path: Path, text: str, **options: Any) -> None:
    real(path, text[: len(text) // 2], **options)


def _half_of_tensors(real: Callable[..., Any], tensors: object, path: Path) -> None:
    real(tensors, path)
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    changes = ("training.steps=6", "checkpoints.every=2", "validation.every=3", "averaging.kind=last")
    run = small_run(tmp_path, *changes, "checkpoints.keep=1", "averaging.count=2")
    train(run, tmp_path / "whole")  # encodes the corpus, too
    counted = Faults()
    with monkeypatch.context() as patched:
        counted.install(patched)
        train(run, tmp_path / "counted")
    assert counted.count > 50
    for deadly in range(1, counted.count + 1, every):
        out = tmp_path / f"cut-{deadly}"

        def until_the_fault(deadly: int = deadly, out: Path = out) -> None:
            Faults(deadly).install(monkeypatch)
            train(run, out)

        assert exit_of(in_a_child(until_the_fault)) == KILLED
        assert exit_of(in_a_child(partial(train, run, out))) == 0, f"after write {deadly}"
        assert_same_model(tmp_path / "whole", out)
        shutil.rmtree(out)
