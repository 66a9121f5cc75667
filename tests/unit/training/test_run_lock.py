"""A directory is one run's, and one process's at a time; what fails leaves it as it was."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest
from torch import Tensor

from regard import Transformer, train
from regard.data import Tokenizer
from regard.errors import ConfigError, DataError, ModelError
from regard.training.callbacks import METRICS, read_metrics
from regard.training.evaluation import read_run
from regard.training.examples import Batch
from regard.training.losses import cross_entropy
from regard.training.run_lock import RUN_FILE, locked
from tests.unit.training.runs import SMALL, Notes, small_run

_TRAIN = "import sys; from regard.cli import main; sys.argv = ['regard', 'train', *sys.argv[1:]]; main()"


def started(base: Path, *changes: str) -> subprocess.Popen[str]:
    """A process with a group of its own that trains in `out`."""
    (base / "run.toml").write_text(SMALL)
    sets = [word for change in changes for word in ("--set", change)]
    command = [sys.executable, "-c", _TRAIN, str(base / "run.toml"), "--out", str(base / "out"), *sets]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for_steps(base: Path, process: subprocess.Popen[str]) -> None:
    for _ in range(1200):
        if (base / "out" / METRICS).exists() and read_metrics(base / "out" / METRICS):
            return
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.05)
    raise AssertionError("no step was made")


def test_one_process_at_a_time(tmp_path: Path) -> None:
    process = started(tmp_path, "training.steps=100000", "training.report_every=1")
    try:
        wait_for_steps(tmp_path, process)
        with pytest.raises(ConfigError, match="another process is training in"):
            train(small_run(tmp_path), tmp_path / "out")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    changes = ("training.steps=1", "training.report_every=1", "training.workers=0")
    train(small_run(tmp_path, *changes), tmp_path / "out")  # the lock went with the process


def test_a_signal_to_the_whole_group_ends_well_with_workers(tmp_path: Path) -> None:
    process = started(tmp_path, "training.steps=100000", "training.report_every=1", "training.workers=2")
    wait_for_steps(tmp_path, process)
    os.killpg(process.pid, signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 143, said
    assert "stopped by signal 15" in said
    assert list((tmp_path / "out" / "checkpoints").iterdir())


def test_a_refused_run_leaves_the_file_of_the_run_that_was_there(tmp_path: Path) -> None:
    for name in ("some", "other"):
        (tmp_path / name).write_text(f"{name} text\n" * 9)
    corpus = 'data.valid=[{kind = "parallel", source = "NAME", target = "NAME"}]'
    out = train(small_run(tmp_path, corpus.replace("NAME", "some")), tmp_path / "out")
    before = (out / RUN_FILE).read_bytes()
    with pytest.raises(ConfigError, match="was trained on other data"):
        train(small_run(tmp_path, corpus.replace("NAME", "other")), out)
    assert (out / RUN_FILE).read_bytes() == before


def test_a_run_of_the_first_versions_resumes(tmp_path: Path) -> None:
    """They called a sampled gradient "drawn", and had no device to choose."""
    sampled = "training.softmax_gradient=sampled"
    whole = train(small_run(tmp_path, sampled), tmp_path / "whole")
    out = train(small_run(tmp_path, sampled, "training.steps=8"), tmp_path / "out")
    content = json.loads((out / RUN_FILE).read_text())
    assert content["training"]["softmax_gradient"] == "sampled"
    content["training"]["softmax_gradient"] = "drawn"
    del content["training"]["device"], content["training"]["compile"]
    (out / RUN_FILE).write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="softmax_gradient was 'sampled' there and is 'exact' here"):
        train(small_run(tmp_path), out)
    assert read_run(out).training.softmax_gradient == "sampled"
    heard = Notes()
    train(small_run(tmp_path, "training.softmax_gradient=drawn"), out, callback=heard)
    assert any("resumed at step 8" in sentence for sentence in heard.sentences)
    assert json.loads((out / RUN_FILE).read_text())["training"]["softmax_gradient"] == "sampled"
    resumed, expected = Transformer.load(out).state_dict(), Transformer.load(whole).state_dict()
    assert all(tensor.equal(expected[name]) for name, tensor in resumed.items())


def test_a_start_that_fails_leaves_nothing_in_the_way_of_the_next(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("\n\n")
    corpus = 'data.train=[{kind = "parallel", source = "a", target = "b"}]'
    with pytest.raises(DataError):
        train(small_run(tmp_path, corpus, "data.valid=[]"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    for name in ("a", "b"):
        (tmp_path / name).write_text("one two three\nfour five six\n" * 20)
    out = train(small_run(tmp_path, corpus, "data.valid=[]", "tokenizer.vocab_size=380"), tmp_path / "out")
    assert "▁three" in Tokenizer.load(out / "tokenizer.json").tokens.values()


def test_a_file_that_no_run_wrote(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / RUN_FILE).write_text('{"data": []}')
    with pytest.raises(ModelError, match="is not what a run writes"):
        train(small_run(tmp_path), tmp_path / "out")


def test_a_signal_is_heard_while_a_tokenizer_learns_and_leaves_nothing(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("x" * 250_000 + "\n")  # takes the library a minute
    process = started(tmp_path, 'data.train=[{kind = "parallel", source = "a", target = "b"}]', "data.valid=[]")
    while not (tmp_path / "out" / RUN_FILE).exists():
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(1.0)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert time.monotonic() - began < 20
    assert said.splitlines()[-1] == "regard: stopped by signal 2 before training began; nothing was written"
    assert not (tmp_path / "out").exists()


def test_a_start_that_fails_leaves_other_files_of_the_directory_alone(tmp_path: Path) -> None:
    (tmp_path / "out" / "snapshots").mkdir(parents=True)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    missing = 'data.valid=[{kind = "tsv", path = "missing.tsv"}]'
    with pytest.raises(DataError, match="missing"):
        train(small_run(tmp_path, missing), tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["notes.txt", "snapshots"]
    with pytest.raises(DataError, match="missing"):
        train(small_run(tmp_path, missing), tmp_path / "a" / "b" / "out")
    assert not (tmp_path / "a").exists()


def test_a_loss_that_fails_before_the_first_state_leaves_nothing(tmp_path: Path) -> None:
    """Metrics, a snapshot and the tokenizers are there by then."""
    calls = iter(range(1, 100))

    def failing(model: Transformer, batch: Batch) -> Tensor:
        if next(calls) > 3:
            raise OSError("the network is gone")
        return cross_entropy()(model, batch)

    run = small_run(tmp_path, "validation.every=2", "training.report_every=1")
    with pytest.raises(OSError, match="the network is gone"):
        train(run, tmp_path / "out", loss=failing)
    assert not (tmp_path / "out").exists()


def test_a_loss_that_fails_after_a_state_was_saved_keeps_it(tmp_path: Path) -> None:
    calls = iter(range(1, 100))

    def failing(model: Transformer, batch: Batch) -> Tensor:
        if next(calls) > 5:
            raise OSError("the network is gone")
        return cross_entropy()(model, batch)

    with pytest.raises(OSError, match="the network is gone"):
        train(small_run(tmp_path), tmp_path / "out", loss=failing)
    assert [path.name for path in (tmp_path / "out" / "checkpoints").iterdir()] == ["step-0000004"]
    assert (tmp_path / "out" / RUN_FILE).exists()


def test_a_lock_file_that_its_holder_removed_meanwhile_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening the file and locking it, the process that had it may have ended and removed it."""
    lockf, calls = fcntl.lockf, iter(range(100))

    def late(file: IO[str], kind: int) -> None:
        if next(calls) == 0:
            (tmp_path / "out" / ".lock").unlink()
        lockf(file, kind)

    monkeypatch.setattr(fcntl, "lockf", late)
    with locked(tmp_path / "out", print):
        assert (tmp_path / "out" / ".lock").exists()  # others open this one, and see that it is locked
    assert next(calls) == 2


def test_a_file_system_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(file: IO[str], kind: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", no_locks)
    notes = Notes()
    train(small_run(tmp_path, "training.steps=1"), tmp_path / "out", callback=notes)
    assert any("out cannot be locked on this file system" in sentence for sentence in notes.sentences)


def test_a_lock_that_fails_otherwise_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(file: IO[str], kind: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "lockf", broken)
    with pytest.raises(ModelError, match=r"\.lock cannot be written: Input/output error"):
        train(small_run(tmp_path), tmp_path / "out")
    assert not (tmp_path / "out").exists()
