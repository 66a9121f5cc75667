"""A signal ends a command with one line and the exit code of the signal."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.training.runs import SMALL

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]


def started(*arguments: str | Path, stderr: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    # Python leaves a signal alone that it finds ignored, as SIGINT is in what a shell runs in the background.
    heard = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    main = f"{heard}; runpy.run_module('regard', run_name='__main__')"
    command = [sys.executable, "-c", main, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_translate_leaves_one_line(number: int, code: int) -> None:
    process = started("translate", "--to", "en", "--stream")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"Ich habe Hunger.\n")
    process.stdin.flush()
    assert process.stdout.readline()  # it is at work, and waits for the next line
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert said.decode() == f"regard: stopped by signal {number}\n"
    assert process.returncode == code


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_tokenizer_train_is_left_at_once_and_writes_nothing(number: int, code: int, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("x" * 250_000 + "\n")  # takes the library a minute
    process = started("tokenizer", "train", tmp_path / "text", "-o", tmp_path / "tokenizer.json")
    time.sleep(4.0)
    assert process.poll() is None
    began = time.monotonic()
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert said.decode() == f"regard: stopped by signal {number}\n"
    assert process.returncode == code
    assert time.monotonic() - began < 10
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_train_on_a_terminal_leaves_no_bar_behind(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(SMALL)
    ours, theirs = pty.openpty()
    changes = ("--set", "training.steps=100000", "--set", "training.report_every=1")
    process = started("train", tmp_path / "run.toml", "--out", tmp_path / "out", *changes, stderr=theirs)
    os.close(theirs)
    said = b""
    while b"tokens/s" not in said:  # the bar is there
        said += _read(ours)
    process.send_signal(signal.SIGINT)
    while process.poll() is None or select.select([ours], [], [], 0.2)[0]:
        if not (more := _read(ours)):
            break
        said += more
    process.communicate(timeout=60)
    assert process.returncode == 130
    left = said[said.rindex(b"\x1b[?25h") :].decode()  # what comes after the cursor is shown again
    assert left.count("\n") <= 2
    assert "regard: stopped by signal 2 after step" in left
    assert "tokens/s" not in left
    assert b"Traceback" not in said


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536) if select.select([descriptor], [], [], 60)[0] else b""
    except OSError:  # the other end is closed
        return b""
