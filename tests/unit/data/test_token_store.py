import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from regard.data import Corpus, JsonLines, ParallelFiles, TabSeparated, TextFiles, Tokenizer, encode_corpus, token_store
from regard.errors import DataError
from regard.tasks.classification import ClassificationTask
from regard.tasks.language_modeling import LanguageModelingTask
from regard.tasks.text2text import TextToTextTask


@pytest.fixture
def corpus(tmp_path: Path) -> TabSeparated:
    lines = [f"the cat {n}\tdie Katze {n}" for n in range(50)]
    lines[7], lines[30] = "\tleer", "empty\t  "
    (tmp_path / "data.tsv").write_text("\n".join(lines) + "\n")
    return TabSeparated(path=tmp_path / "data.tsv")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["the cat", "die Katze"] * 3, vocab_size=380)


def test_what_goes_in_comes_out(
    corpus: TabSeparated, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_store, "_CHUNK", 8)  # several chunks
    encoded = encode_corpus(corpus, TextToTextTask(), tokenizer, tokenizer, tmp_path / "cache")
    kept = [pair for pair in corpus.pairs() if all(side.strip() for side in pair)]
    assert (len(encoded), encoded.empty) == (48, 2)
    for index, (source, target) in enumerate(kept):
        assert encoded.source[index].tolist() == tokenizer.encode(source)
        assert encoded.target[index].tolist() == tokenizer.encode(target)
    assert encoded.source.lengths.tolist() == [len(tokenizer.encode(source)) for source, _ in kept]


def test_the_same_content_is_encoded_once(corpus: TabSeparated, tokenizer: Tokenizer, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    encode_corpus(corpus, TextToTextTask(), tokenizer, tokenizer, cache)
    (first,) = cache.iterdir()
    made = first.stat().st_mtime_ns
    moved = tmp_path / "elsewhere.tsv"
    moved.write_bytes(corpus.path.read_bytes())
    encode_corpus(TabSeparated(path=moved, weight=3), TextToTextTask(), tokenizer, tokenizer, cache)
    assert [entry.stat().st_mtime_ns for entry in cache.iterdir()] == [made]
    moved.write_text("another\tcontent\n")
    encode_corpus(TabSeparated(path=moved), TextToTextTask(), tokenizer, tokenizer, cache)
    encode_corpus(
        TabSeparated(path=moved, source_column=2, target_column=1), TextToTextTask(), tokenizer, tokenizer, cache
    )
    assert len(list(cache.iterdir())) == 3


def test_an_example_that_cannot_be_encoded_is_told_by_its_file(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("a text\tgood\nanother\tbad\n")
    task = ClassificationTask(labels=("fine", "good"))
    with pytest.raises(DataError, match=r"a\.tsv: label 'bad' is not one of the task's: fine, good"):
        encode_corpus(TabSeparated(path=path), task, tokenizer, tokenizer, tmp_path / "cache")


def test_what_fails_half_way_leaves_nothing(corpus: TabSeparated, tokenizer: Tokenizer, tmp_path: Path) -> None:
    corpus.path.write_text(corpus.path.read_text() + "one column\n")
    with pytest.raises(DataError, match="line 51"):
        encode_corpus(corpus, TextToTextTask(), tokenizer, tokenizer, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_corpus_without_pairs_is_told(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\t\n")
    with pytest.raises(DataError, match="there are no examples whose texts are not empty"):
        encode_corpus(TabSeparated(path=tmp_path / "empty"), TextToTextTask(), tokenizer, tokenizer, tmp_path / "cache")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("manifest.json", b""),
        ("manifest.json", b"{}"),
        ("source.tokens", b"\0\0"),
        ("target.tokens", b"\0"),
        ("target.ends", b"\0"),
        ("source.ends", None),
    ],
)
def test_what_is_damaged_in_the_cache_is_made_again(
    corpus: TabSeparated, tokenizer: Tokenizer, tmp_path: Path, name: str, content: bytes | None
) -> None:
    before = encode_corpus(corpus, TextToTextTask(), tokenizer, tokenizer, tmp_path / "cache")
    expected = [before.source[row].tolist() for row in range(len(before))]
    (entry,) = (tmp_path / "cache").iterdir()
    if content is None:
        (entry / name).unlink()
    else:
        (entry / name).write_bytes(content)
    again = encode_corpus(corpus, TextToTextTask(), tokenizer, tokenizer, tmp_path / "cache")
    assert [again.source[row].tolist() for row in range(len(again))] == expected


def test_options_that_are_not_set_do_not_change_what_a_corpus_is_found_by(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """What was encoded before there were `columns` and `fields` is found again."""
    path = tmp_path / "data"
    path.write_text('{"a": "the cat", "b": "die Katze"}\t{}\n')

    def expected(layout: dict[str, Any], files: int = 1) -> str:
        digest = hashlib.sha256(json.dumps([2, "", {"rough": 0.0, **layout}], sort_keys=True).encode())
        for _ in range(files):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        for _ in range(2):
            digest.update(tokenizer.to_json().encode())
        return digest.hexdigest()[:32]

    def found(corpus: Corpus) -> str:
        return token_store._fingerprint(corpus, TextToTextTask(), tokenizer, tokenizer)

    columns = {"kind": "tsv", "source_column": 1, "target_column": 2}
    assert found(TabSeparated(path=path)) == expected(columns)
    assert found(TabSeparated(path=path, columns={"source": 1, "target": 2})) != expected(columns)
    fields = {"kind": "jsonl", "source_field": "a", "target_field": "b"}
    assert found(JsonLines(path=path, source_field="a", target_field="b")) == expected(fields)
    assert found(JsonLines(path=path)) != found(JsonLines(path=path, fields={"source": "a"}))
    assert found(ParallelFiles(source=path, target=path)) == expected({"kind": "parallel"}, files=2)


def test_a_text_that_is_cut_into_blocks_may_be_of_any_length(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_store, "LONGEST_LINE", 100)
    text = "the cat " * 50
    (tmp_path / "book.txt").write_text(text)
    (tmp_path / "pairs.tsv").write_text(f"{text}\ta\nthe cat\ta\n")
    book = TextFiles(path=tmp_path / "book.txt", whole=True)
    encoded = encode_corpus(book, LanguageModelingTask(block=16), tokenizer, tokenizer, tmp_path / "cache")
    assert sum(encoded.target.lengths) == len(tokenizer.encode(text)) + 1
    assert encoded.oversized == 0
    pairs = TabSeparated(path=tmp_path / "pairs.tsv")
    assert encode_corpus(pairs, TextToTextTask(), tokenizer, tokenizer, tmp_path / "cache").oversized == 1
