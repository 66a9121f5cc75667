import gzip
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from regard import ConfigError
from regard.data import Answer, AnyCorpus, Corpus, Dates, JsonLines, ParallelFiles, TabSeparated, TextFiles
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
    with pytest.raises(ConfigError, match="pth is not a known key; did you mean path?"):
        reader.validate_python({"kind": "tsv", "pth": "x.tsv"})


@pytest.mark.parametrize(
    ("content", "corpus", "says"),
    [
        (b"a\tb\nc\n", dict(kind="tsv"), "line 2 has 1 columns; target is column 2"),
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


QUESTIONS = ("context", "question", "answers")


def test_columns_are_those_of_the_fields_in_order_or_by_name(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("Mary is out.\tWho is out?\tMary\nIt rains.\tWhy?\t\n")
    expected = [
        {"context": "Mary is out.", "question": "Who is out?", "answers": [Answer("Mary")]},
        {"context": "It rains.", "question": "Why?", "answers": []},
    ]
    assert list(TabSeparated(path=tmp_path / "t").examples(QUESTIONS)) == expected
    swapped = TabSeparated(path=tmp_path / "t", columns={"context": 2, "question": 1, "answers": 3})
    assert next(swapped.examples(QUESTIONS))["context"] == "Who is out?"
    two = TabSeparated(path=tmp_path / "t", source_column=3, target_column=1)
    assert next(two.examples(("document", "summary"))) == {"document": "Mary", "summary": "Mary is out."}
    assert next(TabSeparated(path=tmp_path / "t").examples(("text", "label")))["label"] == "Who is out?"


def test_fields_of_json_lines_have_the_names_of_the_task_or_others(tmp_path: Path) -> None:
    (tmp_path / "j").write_text('{"document": "d", "abstract": "a", "summary": "s", "answer": "x", "label": 1}\n')
    lines = JsonLines(path=tmp_path / "j")
    assert list(lines.examples(("document", "summary"))) == [{"document": "d", "summary": "s"}]
    assert list(lines.examples(("document", "answers", "label"))) == [
        {"document": "d", "answers": [Answer("x")], "label": "1"}
    ]
    renamed = JsonLines(path=tmp_path / "j", fields={"document": "abstract"})
    assert list(renamed.examples(("document", "summary"))) == [{"document": "a", "summary": "s"}]
    one = JsonLines(path=tmp_path / "j", source_field="abstract")
    assert list(one.examples(("document", "summary"))) == [{"document": "a", "summary": "s"}]


def test_pairs_are_the_two_fields_of_a_task(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("eins\n")
    files = ParallelFiles(source=tmp_path / "a", target=tmp_path / "a")
    assert list(files.examples(("document", "summary"))) == [{"document": "eins", "summary": "eins"}]
    dates = Dates(count=1)
    assert [tuple(example.values()) for example in dates.examples(("text", "label"))] == list(dates.pairs())


def test_texts_are_lines_or_whole_files(tmp_path: Path) -> None:
    for number in (10, 9):
        (tmp_path / f"{number}.txt").write_text(f"first {number}\n\nlast\n")
    pattern = tmp_path / "*.txt"
    lines = ["first 9", "", "last", "first 10", "", "last"]
    assert [example["text"] for example in TextFiles(path=pattern).examples(("text",))] == lines
    paths = (tmp_path / "10.txt", tmp_path / "9.txt")
    both = TextFiles(path=paths, whole=True)
    assert [example["text"] for example in both.examples(("text",))] == ["first 10\n\nlast", "first 9\n\nlast"]
    reader: TypeAdapter[AnyCorpus] = TypeAdapter(AnyCorpus)
    read = reader.validate_python({"kind": "text", "path": [str(path) for path in paths]})
    assert read == TextFiles(path=paths)
    with pytest.raises(ConfigError, match="path"):
        reader.validate_python({"kind": "text", "path": []})


HERE = Path("x")


@pytest.mark.parametrize(
    ("corpus", "fields", "says"),
    [
        (ParallelFiles(source=HERE, target=HERE), QUESTIONS, "a corpus of kind 'parallel' is for tasks of two fields"),
        (Dates(), ("text",), "a corpus of kind 'dates' is for tasks of two fields; this one has text"),
        (TextFiles(path=HERE), ("source", "target"), "text files have one field, a text; the task needs source, targ"),
        (TabSeparated(path=HERE, source_column=2), QUESTIONS, "source_column and target_column are for tasks of two"),
        (JsonLines(path=HERE, source_field="a"), QUESTIONS, "source_field and target_field are for tasks of two"),
        (TabSeparated(path=HERE, columns={"text": 1}), ("text", "label"), "columns has no 'label' of x"),
        (TabSeparated(path=HERE, columns={"txt": 1}), ("text",), "columns of x has 'txt', which is no field of the"),
        (JsonLines(path=HERE, fields={"txt": "a"}), ("text",), "fields of x has 'txt', which is no field of the task"),
        (TabSeparated(path=HERE, noise=0.5), QUESTIONS, "noise is for tasks with a source and a target text"),
        (TabSeparated(path=HERE, noise=0.5), ("text", "label"), "noise is for tasks with a source and a target text"),
    ],
)
def test_fields_that_do_not_fit_are_refused_before_reading(corpus: Corpus, fields: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        corpus.examples(fields)


def test_old_and_new_keys_are_not_mixed() -> None:
    with pytest.raises(ConfigError, match="source_column and target_column are not set beside it"):
        TabSeparated(path=HERE, target_column=1, columns={"source": 2, "target": 1})
    with pytest.raises(ConfigError, match="source_field and target_field are not set beside it"):
        JsonLines(path=HERE, target_field="a", fields={"target": "b"})


def test_examples_and_pairs_have_the_same_noise(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("".join(f"It is {n}.\tEs ist {n}.\n" for n in range(50)))
    corpus = TabSeparated(path=tmp_path / "t", noise=0.5)
    examples = list(corpus.examples(("document", "summary")))
    assert [tuple(example.values()) for example in examples] == list(corpus.pairs())
    assert len(examples) > len(list(corpus.read_examples(("document", "summary")))) == 50


def test_a_field_that_is_missing_is_told_by_file_line_and_name(tmp_path: Path) -> None:
    (tmp_path / "j").write_text('{"document": "d", "summary": "s"}\n{"document": "d"}\n')
    with pytest.raises(DataError, match=r"j, line 2 has no field 'summary'"):
        list(JsonLines(path=tmp_path / "j").examples(("document", "summary")))
    with pytest.raises(DataError, match=r"j, line 1 has no field 'answers'"):
        list(JsonLines(path=tmp_path / "j").examples(("document", "answers")))


def test_noise_is_read_by_its_first_name() -> None:
    assert TabSeparated.model_validate({"path": "a", "rough": 0.5}) == TabSeparated(path=Path("a"), noise=0.5)


def test_a_directory_is_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a directory; a file was expected"):
        list(TabSeparated(path=tmp_path).pairs())


def test_an_empty_answer_is_none(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text('{"context": "a", "question": "b", "answers": ["", "c"]}\n')
    (example,) = JsonLines(path=path).examples(QUESTIONS)
    assert [answer.text for answer in example["answers"]] == ["c"]
