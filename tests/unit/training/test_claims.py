"""A directory is one run's, and one process's at a time; what fails leaves it as it was."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regard import train
from regard.errors import ConfigError, DataError, ModelError
from regard.text import Tokenizer
from regard.training.claims import RUN_FILE
from regard.training.reports import METRICS, read_metrics
from tests.unit.training.runs import SMALL, small_run

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


def test_a_start_that_fails_leaves_nothing_in_the_way_of_the_next(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("\n\n")
    corpus = 'data.train=[{kind = "parallel", source = "a", target = "b"}]'
    with pytest.raises(DataError):
        train(small_run(tmp_path, corpus, "data.valid=[]"), tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
    for name in ("a", "b"):
        (tmp_path / name).write_text("one two three\nfour five six\n" * 20)
    out = train(small_run(tmp_path, corpus, "data.valid=[]", "tokenizer.vocab_size=380"), tmp_path / "out")
    assert "▁three" in Tokenizer.load(out / "tokenizer.json").tokens.values()


def test_a_file_that_no_run_wrote(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / RUN_FILE).write_text('{"data": []}')
    with pytest.raises(ModelError, match="is not what a run writes"):
        train(small_run(tmp_path), tmp_path / "out")


def test_a_second_signal_is_heard_while_a_tokenizer_learns(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("x" * 250_000 + "\n")  # takes the library a minute
    process = started(tmp_path, 'data.train=[{kind = "parallel", source = "a", target = "b"}]', "data.valid=[]")
    while not (tmp_path / "out" / RUN_FILE).exists():
        assert process.poll() is None
        time.sleep(0.05)
    began = time.monotonic()
    for number in (signal.SIGINT, signal.SIGTERM):
        time.sleep(1.0)
        process.send_signal(number)
    assert process.wait(timeout=60) == 143
    process.communicate()
    assert time.monotonic() - began < 20
