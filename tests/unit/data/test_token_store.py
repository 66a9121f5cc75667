from pathlib import Path

import pytest

from regard.data import TabSeparated, Tokenizer, encode_corpus, token_store
from regard.errors import DataError


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
    encoded = encode_corpus(corpus, tokenizer, tokenizer, tmp_path / "cache")
    kept = [pair for pair in corpus.pairs() if all(side.strip() for side in pair)]
    assert (len(encoded), encoded.empty) == (48, 2)
    for index, (source, target) in enumerate(kept):
        assert encoded.source[index].tolist() == tokenizer.encode(source)
        assert encoded.target[index].tolist() == tokenizer.encode(target)
    assert encoded.source.lengths.tolist() == [len(tokenizer.encode(source)) for source, _ in kept]


def test_the_same_content_is_encoded_once(corpus: TabSeparated, tokenizer: Tokenizer, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    encode_corpus(corpus, tokenizer, tokenizer, cache)
    (first,) = cache.iterdir()
    made = first.stat().st_mtime_ns
    moved = tmp_path / "elsewhere.tsv"
    moved.write_bytes(corpus.path.read_bytes())
    encode_corpus(TabSeparated(path=moved, weight=3), tokenizer, tokenizer, cache)
    assert [entry.stat().st_mtime_ns for entry in cache.iterdir()] == [made]
    moved.write_text("another\tcontent\n")
    encode_corpus(TabSeparated(path=moved), tokenizer, tokenizer, cache)
    encode_corpus(TabSeparated(path=moved, source_column=2, target_column=1), tokenizer, tokenizer, cache)
    assert len(list(cache.iterdir())) == 3


def test_what_fails_half_way_leaves_nothing(corpus: TabSeparated, tokenizer: Tokenizer, tmp_path: Path) -> None:
    corpus.path.write_text(corpus.path.read_text() + "one column\n")
    with pytest.raises(DataError, match="line 51"):
        encode_corpus(corpus, tokenizer, tokenizer, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_corpus_without_pairs_is_told(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\t\n")
    with pytest.raises(DataError, match="no pairs with text on both sides"):
        encode_corpus(TabSeparated(path=tmp_path / "empty"), tokenizer, tokenizer, tmp_path / "cache")


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
    before = encode_corpus(corpus, tokenizer, tokenizer, tmp_path / "cache")
    expected = [before.source[row].tolist() for row in range(len(before))]
    (entry,) = (tmp_path / "cache").iterdir()
    if content is None:
        (entry / name).unlink()
    else:
        (entry / name).write_bytes(content)
    again = encode_corpus(corpus, tokenizer, tokenizer, tmp_path / "cache")
    assert [again.source[row].tolist() for row in range(len(again))] == expected
