import json
import subprocess
import sys
import unicodedata
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import InputError, ModelError
from regard.text import Tokenizer
from regard.text.tokenizer import END, PAD, START, UNKNOWN, TokenizerKind

TEXTS = [
    "the cat sat on the mat",
    "the dog sat on the log",
    "der Hund saß auf dem Boden, und die Katze schlief",
    "a quick brown fox jumps over the lazy dog",
] * 5


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.train(TEXTS, vocab_size=400, kind=request.param, tags=["<2de>", "<2en>"])


texts = st.text(alphabet=st.one_of(st.sampled_from(" \tthecat<s>▁🐕é"), st.characters(exclude_categories=["Cs"])))


@given(text=texts)
def test_any_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    numbers = tokenizer.encode(text)
    assert tokenizer.decode(numbers) == unicodedata.normalize("NFC", text).replace("▁", " ")
    assert tokenizer.number(UNKNOWN) not in numbers


@pytest.mark.parametrize(
    "text", ["<s>", "a </s> b", "<pad>", "<0x41>", "<2de>", "<unk>", "▁", "  two  spaces ", "\t\n"]
)
def test_what_looks_special_is_text(tokenizer: Tokenizer, text: str) -> None:
    numbers = tokenizer.encode(text)
    special = {tokenizer.number(token) for token in (PAD, START, END, UNKNOWN, "<2de>")}
    assert not special & set(numbers)
    if "▁" not in text:
        assert tokenizer.decode(numbers) == text


def test_special_tokens_come_first_and_are_left_out_of_text(tokenizer: Tokenizer) -> None:
    assert [tokenizer.token(number) for number in range(6)] == [PAD, START, END, UNKNOWN, "<2de>", "<2en>"]
    numbers = tokenizer.encode("the cat")
    assert tokenizer.decode([1, 4, *numbers, 2, 0, 0]) == "the cat"
    assert tokenizer.encode_batch(["the cat", ""]) == [numbers, []]


def test_saved_and_loaded_it_is_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.kind == tokenizer.kind
    assert loaded.to_json() == tokenizer.to_json()
    for text in ("the dog <s>", "unseen 🐕 words"):
        assert loaded.encode(text) == tokenizer.encode(text)
    assert list(tmp_path.iterdir()) == [tmp_path / "tokenizer.json"]


def test_the_vocabulary_is_no_larger_than_asked_for(tokenizer: Tokenizer) -> None:
    assert 262 < tokenizer.vocab_size <= 400


def test_words_are_used_as_they_are_cut() -> None:
    tokenizer = Tokenizer.train(["ein hund@@ e@@ knochen", "ein haus"], kind="words", vocab_size=20)
    numbers = tokenizer.encode("ein hund@@ haus xyz")
    assert [tokenizer.token(number) for number in numbers] == ["ein", "hund@@", "haus", UNKNOWN]
    assert tokenizer.decode(tokenizer.encode("ein hund@@ e@@ knochen")) == "ein hundeknochen"
    assert tokenizer.vocab_size == 9


def test_bad_arguments_are_told() -> None:
    with pytest.raises(InputError, match="vocab_size is 260; .* take 260"):
        Tokenizer.train(TEXTS, vocab_size=260)
    tokenizer = Tokenizer.train(TEXTS, kind="words", vocab_size=20)
    with pytest.raises(InputError, match="'<2fr>'"):
        tokenizer.number("<2fr>")
    with pytest.raises(InputError, match="number 99"):
        tokenizer.token(99)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"normalizer": {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}},
            "its normalizer is 'Replace'",
        ),
        ({"pre_tokenizer": {"type": "Split"}}, "its pre_tokenizer is 'Split'"),
        ({"model": {"type": "WordPiece"}}, "'WordPiece'"),
        ({"model": 3}, "describes no model"),
        ({"model": {"type": "BPE"}}, "is not a tokenizer"),
        ({"model": {"type": ["BPE"]}}, r"its model is \['BPE'\]"),
        ({"model": {"type": "BPE", "dropout": 0.5, "vocab": {}, "merges": []}}, "has dropout"),
        ({"truncation": {"max_length": 1}}, "has truncation"),
        ({"padding": {"pad_id": 0}}, "has padding"),
    ],
)
def test_a_tokenizer_from_outside_is_checked_before_it_runs(tmp_path: Path, change: dict, says: str) -> None:
    path = tmp_path / "tokenizer.json"
    Tokenizer.train(TEXTS, vocab_size=400).save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ModelError, match=says) as caught:
        Tokenizer.load(path)
    assert str(path) in str(caught.value)


def test_a_missing_or_broken_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="missing"):
        Tokenizer.load(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match="not JSON"):
        Tokenizer.load(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_text_that_spells_a_byte_again_and_again_stays_text(kind: TokenizerKind) -> None:
    texts = ["x<0x0A>y", "<0x0A>", "a <0x0A> b"] * 50
    tokenizer = Tokenizer.train(texts, vocab_size=420, kind=kind)
    for text in texts[:3]:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert sorted(tokenizer.tokens) == list(range(tokenizer.vocab_size))


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_text_that_spells_a_special_token_again_and_again_stays_text(kind: TokenizerKind) -> None:
    texts = ["x</s> y</s>", "z<s> <s>", "oder wieder gelde", "<2de> b"] * 50
    tokenizer = Tokenizer.train(texts, vocab_size=450, kind=kind, tags=["de", "<2de>"])
    for text in texts[:4]:
        numbers = tokenizer.encode(text)
        assert tokenizer.decode(numbers) == text
        assert not set(numbers) & set(tokenizer.special)
    assert sorted(tokenizer.tokens) == list(range(tokenizer.vocab_size))


def test_a_word_that_is_spelled_like_a_special_token_is_not_known() -> None:
    tokenizer = Tokenizer.train(["a </s> b"], kind="words", vocab_size=20)
    unknown = tokenizer.number("<unk>")
    expected = [tokenizer.number("a"), unknown, tokenizer.number("b")]
    assert tokenizer.encode("a </s> b") == expected
    assert tokenizer.encode_batch(["a </s> b", "a"]) == [expected, expected[:1]]


@pytest.mark.parametrize("tag", ["e", "▁", "<0x0A>"])
def test_a_tag_that_texts_are_made_of_is_refused(tag: str) -> None:
    with pytest.raises(InputError, match=f"tag {tag!r}"):
        Tokenizer.train(TEXTS, tags=[tag])


def test_the_same_texts_give_the_same_pieces_in_every_process() -> None:
    program = (
        "from regard.text import Tokenizer\n"
        "texts = [f'{a}{b} {b}{c} {c}{a}' for a in 'abcdefgh' for b in 'ijklm' for c in 'nopqrst']\n"
        "print(Tokenizer.train(texts, vocab_size=430, kind='unigram').to_json())"
    )
    run = partial(subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run().stdout == run().stdout


def test_a_vocabulary_that_is_too_small_for_all_characters() -> None:
    with pytest.raises(InputError, match="no unigram vocabulary of 265"):
        Tokenizer.train(TEXTS, vocab_size=265, kind="unigram")
