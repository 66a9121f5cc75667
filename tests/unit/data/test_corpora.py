import gzip
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from regard import ConfigError
from regard.data import AnyCorpus, JsonLines, ParallelFiles, TabSeparated
from regard.data.corpora import read_lines
from regard.errors import DataError


def test_each_kind_reads_the_same_pairs_plain_or_compressed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("eins\nzwei drei\n\n")
    (tmp_path / "b").write_bytes(gzip.compress("one\r\ntwo\u2028three\n\n".encode()))
    expected = [("eins", "one"), ("zwei drei", "two\u2028three"), ("", "")]
    assert list(ParallelFiles(source=tmp_path / "a", target=tmp_path / "b").pairs()) == expected
    (tmp_path / "t").write_bytes(gzip.compress(b"x\tone\teins\nx\ttwo\tzwei\n"))
    table = TabSeparated(path=tmp_path / "t", source_column=3, target_column=2)
    assert list(table.pairs()) == [("eins", "one"), ("zwei", "two")]
    (tmp_path / "j").write_text('{"d": "eins", "e": "one", "n": 1}\n{"e": "two", "d": "zwei"}\n')
    lines = JsonLines(path=tmp_path / "j", source_field="d", target_field="e")
    assert list(lines.pairs()) == [("eins", "one"), ("zwei", "two")]


def test_a_run_file_names_the_kind() -> None:
    reader: TypeAdapter[AnyCorpus] = TypeAdapter(AnyCorpus)
    corpus = reader.validate_python({"kind": "tsv", "path": "x.tsv", "weight": 2})
    assert isinstance(corpus, TabSeparated)
    with pytest.raises(ConfigError, match="pth is not a key it knows; did you mean path?"):
        reader.validate_python({"kind": "tsv", "pth": "x.tsv"})


@pytest.mark.parametrize(
    ("content", "corpus", "says"),
    [
        (b"a\tb\nc\n", dict(kind="tsv"), "line 2 has 1 columns; column 2"),
        (b"a\tb\nc\t\xff\n", dict(kind="tsv"), "line 2 is not UTF-8: byte 3"),
        # Without the time in it: all processes that share the tests must name them alike.
        (gzip.compress(b"a\tb\n" * 9999, mtime=0)[:50], dict(kind="tsv"), "cannot be read after line"),
        (b'{"a": "b"', dict(kind="jsonl", source_field="a", target_field="a"), "line 1 is not JSON"),
        (b'{"a": "b"}', dict(kind="jsonl", source_field="a", target_field="c"), "line 1 has no field 'c'"),
        (b'{"a": 3}', dict(kind="jsonl", source_field="a", target_field="a"), "field 'a' is int"),
        (b"[1]", dict(kind="jsonl", source_field="a", target_field="a"), "no field 'a'"),
        (None, dict(kind="tsv"), "missing"),
    ],
)
def test_what_is_wrong_is_told_by_file_and_line(tmp_path: Path, content: bytes | None, corpus: dict, says: str) -> None:
    path = tmp_path / "data"
    if content is not None:
        path.write_bytes(content)
    reader: TypeAdapter[AnyCorpus] = TypeAdapter(AnyCorpus)
    with pytest.raises(DataError) as caught:
        list(reader.validate_python({**corpus, "path": path}).pairs())
    assert str(path) in str(caught.value)
    assert says in str(caught.value)


def test_parallel_files_of_different_lengths_are_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    (tmp_path / "b").write_text("1\n2\n3\n")
    with pytest.raises(DataError, match=r"a ends after line 2, .*b goes on"):
        list(ParallelFiles(source=tmp_path / "a", target=tmp_path / "b").pairs())


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n")
    assert list(read_lines(tmp_path / "marked")) == ["one", "\ufefftwo"]


def test_a_damaged_archive_is_said(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(b"".join(b"line %d\n" % number for number in range(10_000))))
    whole[len(whole) // 2] ^= 0xFF
    (tmp_path / "bad.gz").write_bytes(whole)
    with pytest.raises(DataError, match=r"bad\.gz cannot be read after line"):
        list(read_lines(tmp_path / "bad.gz"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": "\\ud83d", "b": "x"}', "half a character"),
        ("[" * 200_000, "line 1 is not JSON"),
        ('{"a": ' + "9" * 5000 + "}", "line 1 is not JSON that can be read"),
    ],
)
def test_json_that_is_odd(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(text + "\n")
    with pytest.raises(DataError, match=says):
        list(JsonLines(path=tmp_path / "x.jsonl", source_field="a", target_field="b").pairs())
