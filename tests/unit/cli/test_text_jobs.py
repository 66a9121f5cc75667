"""Lines in, results out, whatever the task is."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from regard.cli import text_jobs
from regard.cli.outputs import Format, written
from regard.cli.text_jobs import FileJob, TextJob, stream_lines
from regard.errors import DataError, InputError
from regard.inference.results import GeneratedText


def backwards(lines: list[str]) -> list[GeneratedText]:
    """A task that needs no model: each line is written backwards, and cut where it has a z."""
    return [GeneratedText(line[::-1], -1.0, list(line[::-1]), cut="z" in line) for line in lines]


def job(form: Format = Format.text, **identity: Any) -> TextJob:
    return TextJob(backwards, form, lambda: identity)


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(text_jobs, "CHUNK", 2)
    path = tmp_path / "in.txt"
    path.write_text("one\ntwo\n\nzoo\nfive\n")
    return path


def test_texts_of_the_command_line_come_first_then_standard_input(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    job().start(["one", "two"], FileJob())
    assert capsysbinary.readouterr().out == b"eno\nowt\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("süß\n\n".encode())))
    job().start(None, FileJob())
    assert capsysbinary.readouterr().out.decode() == "ßüs\n\n"


def test_the_lines_of_a_file_are_numbered_and_warned_of(
    lines: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    job().start(None, FileJob(lines, shard="2/2"))
    out, err = capsysbinary.readouterr()
    assert out == b"\nooz\nevif\n"
    assert err == b"regard: line 4: the text reached its maximum length and is not at its end\n"


def test_a_file_that_was_begun_is_finished_by_the_same_job_only(lines: Path) -> None:
    output = lines.with_name("out.txt")
    started: list[str] = []

    def stopping(chunk: list[str]) -> list[GeneratedText]:
        started.append(chunk[0])
        if len(started) == 2:
            raise OSError("the power is gone")
        return backwards(chunk)

    interrupted = TextJob(stopping, Format.text, lambda: {"model": 1})
    with pytest.raises(OSError, match="the power is gone"):
        interrupted.start(None, FileJob(lines, output))
    assert not output.exists()
    with pytest.raises(InputError, match="is of another job"):
        job(model=2).start(None, FileJob(lines, output))
    interrupted.start(None, FileJob(lines, output))
    assert started == ["one", "", "", "five"]
    assert output.read_text() == "eno\nowt\n\nooz\nevif\n"


def test_formats() -> None:
    (one,) = backwards(["to\tz"])
    assert written("to\tz", one, Format.text) == "z\tot\n"
    assert written("x", GeneratedText("a\nb", 0.0, []), Format.text) == "a b\n"
    assert written("to\tz", one, Format.tsv) == "to z\tz ot\t-1.0000\n"
    assert json.loads(written("to\tz", one, Format.jsonl)) == {
        "source": "to\tz",
        "text": "z\tot",
        "score": -1.0,
        "tokens": ["z", "\t", "o", "t"],
        "cut": True,
    }


def test_a_stream_is_printed_line_by_line(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    stream_lines(["a b", ""], None, str.split)
    assert capsysbinary.readouterr().out == b"ab\n\n"


def test_a_blank_line_of_a_file_is_not_streamed_and_a_blank_text_is(
    lines: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    lines.write_text("a b\n\nc\n")
    stream_lines(None, lines, lambda line: [line.upper(), "!"])
    assert capsysbinary.readouterr().out == b"A B!\n\nC!\n"
    stream_lines([""], None, lambda line: [line.upper(), "!"])
    assert capsysbinary.readouterr().out == b"!\n"


def test_a_blank_line_has_the_fields_of_others(lines: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    lines.write_text("\n")
    TextJob(backwards, Format.jsonl, dict, blank=("label", "score")).start(None, FileJob(lines))
    assert json.loads(capsysbinary.readouterr().out) == {"source": "", "label": None, "score": None}


def refusing(lines: list[str]) -> list[GeneratedText]:
    if any(len(line) > 4 for line in lines):
        raise InputError("a text is too long")
    return backwards(lines)


def test_a_line_that_cannot_be_worked_on_is_named(lines: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    lines.write_text("one\ntwo\nfour\nfive!\nsix\n")
    refused = TextJob(refusing, Format.text, dict)
    with pytest.raises(DataError, match=rf"{lines.name}, line 4: a text is too long"):
        refused.start(None, FileJob(lines))
    assert capsysbinary.readouterr().out == b"eno\nowt\n"  # what was done before it is there
    with pytest.raises(DataError, match=rf"{lines.name}, line 4: a text is too long"):
        refused.start(None, FileJob(lines, shard="2/2"))
    with pytest.raises(InputError, match="^a text is too long"):
        refused.start(["one", "fives"], FileJob())


@pytest.mark.parametrize(
    ("form", "expected"), [("text", "eno\n\n\n"), ("tsv", "one\teno\t-1.0000\n\t\t0.0000\n \t\t0.0000\n")]
)
def test_blank_lines_stay_blank_where_nothing_is_to_be_done_with_them(
    lines: Path, capsysbinary: pytest.CaptureFixture[bytes], form: str, expected: str
) -> None:
    lines.write_text("one\n\n \n")
    seen: list[str] = []

    def watching(some: list[str]) -> list[GeneratedText]:
        seen.extend(some)
        return backwards(some)

    blank = TextJob(watching, Format(form), dict, blank=("text", "score"))
    blank.start(None, FileJob(lines))
    assert capsysbinary.readouterr().out.decode() == expected
    assert seen == ["one"]
    blank.start([""], FileJob())  # an argument is meant as it is
    assert seen == ["one", ""]
