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
from regard.data import Tokenizer
from regard.data.tokenizer import END, PAD, START, UNKNOWN, TokenizerKind

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


LONG = "x" * 3200


@pytest.mark.parametrize(
    ("kind", "change", "says"),
    [
        (
            "bpe",
            {"normalizer": {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}},
            'its normalizer is {"type": "Replace"',
        ),
        ("bpe", {"normalizer": {"type": "Prepend", "prepend": LONG}}, "its normalizer is .* characters"),
        (
            "bpe",
            {
                "normalizer": {
                    "type": "Sequence",
                    "normalizers": [{"type": "NFC"}, {"type": "Prepend", "prepend": LONG}],
                }
            },
            "its normalizer is .* characters",
        ),
        ("bpe", {"pre_tokenizer": {"type": "Split"}}, 'its pre_tokenizer is {"type": "Split"}; .* was expected'),
        ("words", {"pre_tokenizer": None}, "its pre_tokenizer is null"),
        ("bpe", {"decoder": None}, "its decoder is null"),
        ("bpe", {"post_processor": {"type": "ByteLevel"}}, "its post_processor is"),
        ("bpe", {"truncation": {"max_length": 1}}, "its truncation is"),
        ("bpe", {"padding": {"pad_id": 0}}, "its padding is"),
        ("bpe", {"version": 1.0}, 'its version is 1.0; "1.0" was expected'),
        ("bpe", {"more": 1}, 'its "more" is not a known key'),
        ("bpe", {"model": 3}, "its model is 3"),
        ("bpe", {"model": {"type": "WordPiece"}}, '"WordPiece"; it is one of BPE'),
        ("bpe", {"model": {"type": "BPE"}}, "its model's byte_fallback is missing"),
        ("bpe", {"model": {"type": ["BPE"]}}, r'type is \["BPE"\]'),
        ("bpe", {"added_tokens": 3}, "its added_tokens are 3"),
        ("bpe", {"added_tokens": [3]}, r"its added_tokens are \[3\]"),
        ("bpe", {"added_tokens": []}, "its added_tokens are 0"),
    ],
)
def test_parts_that_regard_does_not_write_are_refused(
    tmp_path: Path, kind: TokenizerKind, change: dict, says: str
) -> None:
    path = tmp_path / "tokenizer.json"
    Tokenizer.train(TEXTS, vocab_size=400, kind=kind).save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    check_refused(path, says)


@pytest.mark.parametrize(
    ("kind", "change", "says"),
    [
        ("bpe", {"dropout": 0.5}, "its model's dropout is 0.5; null was expected"),
        ("bpe", {"byte_fallback": 1}, "its model's byte_fallback is 1; true was expected"),
        ("bpe", {"unk_token": "<none>"}, "its model's unk_token is"),
        ("bpe", {"vocab": []}, "not an object of tokens and their numbers"),
        ("bpe", {"vocab": {"a": True}}, "not an object of tokens and their numbers"),
        ("bpe", {"vocab": {"a": 0, "b": 2}}, 'token "b" has number 2; the 2 tokens are numbered from 0'),
        ("bpe", {"vocab": {"a": 0, "b": 0}}, 'token "b" has number 0'),
        ("bpe", {"vocab": {"": 0}}, 'token "" has 0 characters'),
        ("bpe", {"vocab": {LONG: 0}}, "has 3,200 characters; 1 to 1,000 may be"),
        ("bpe", {"vocab": {"\ud800": 0}}, "half a character"),
        ("bpe", {"vocab": {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}}, "no token <0x00> for a byte"),
        ("bpe", {"merges": [["t", "no such token"]]}, '"no such token" is not in its vocabulary'),
        ("bpe", {"merges": [["~", "~"]]}, '"~~" is not in its vocabulary'),
        ("bpe", {"merges": ["t h"]}, 'its merges have "t h"; two tokens were expected'),
        ("bpe", {"merges": {}}, "its merges are not a list"),
        ("unigram", {"unk_id": 0}, "its model's unk_id is 0; 3 was expected"),
        ("unigram", {"vocab": {}}, "not a list of tokens and their scores"),
        ("unigram", {"vocab": [["a", 0.0], ["a", 0.0]]}, "has a token twice"),
        ("unigram", {"vocab": [["a", float("nan")]]}, r'\["a", NaN\]; a token and its score were expected'),
        ("unigram", {"vocab": [["a", 10**400]]}, "a token and its score were expected"),
        ("unigram", {"vocab": [["a", None]]}, "a token and its score were expected"),
        ("words", {"unk_token": "<none>"}, 'unk_token is "<none>"; "<unk>" was expected'),
        ("words", {"vocab": {"the": 0, "cat": 1, "sat": 2, "on": 3}}, 'token 0 of its vocabulary is "the"; <pad> was'),
    ],
)
def test_a_model_with_other_fields_than_regards_is_refused(
    tmp_path: Path, kind: TokenizerKind, change: dict, says: str
) -> None:
    path = tmp_path / "tokenizer.json"
    Tokenizer.train(TEXTS, vocab_size=400, kind=kind).save(path)
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "model": {**content["model"], **change}}))
    check_refused(path, says)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"special": False}, "added token 4's special is false; true was expected"),
        ({"id": 5}, "added token 4's id is 5; 4 was expected"),
        ({"content": "<2fr>"}, 'added token 4\'s content is "<2fr>"; "<2de>" was expected'),
        ({"normalized": True}, "added token 4's normalized is true"),
        ({"lstrip": 0}, "added token 4's lstrip is 0; false was expected"),
    ],
)
def test_a_special_token_that_is_not_the_vocabularys_is_refused(tmp_path: Path, change: dict, says: str) -> None:
    path = tmp_path / "tokenizer.json"
    Tokenizer.train(TEXTS, vocab_size=400, tags=["<2de>"]).save(path)
    content = json.loads(path.read_text())
    content["added_tokens"][4] |= change
    path.write_text(json.dumps(content))
    check_refused(path, says)


def check_refused(path: Path, says: str) -> None:
    with pytest.raises(ModelError, match=says) as caught:
        Tokenizer.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with path.open("wb") as file:
        file.truncate(2**31)
    check_refused(path, "tokenizer.json is larger than 32 MB")


@pytest.mark.parametrize("kind", ["bpe", "unigram", "words"])
def test_a_word_without_end_in_a_text_does_not_make_a_tokenizer_that_cannot_be_read(
    tmp_path: Path, kind: TokenizerKind
) -> None:
    tokenizer = Tokenizer.train(["the cat " + 1000 * "abcd"] * 9, vocab_size=600, kind=kind, tags=["<2de>"])
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.to_json() == tokenizer.to_json()
    assert loaded.decode(loaded.encode("the cat")) == "the cat"


@pytest.mark.parametrize("kind", ["bpe", "unigram", "words"])
def test_a_tag_that_is_given_twice_is_one(tmp_path: Path, kind: TokenizerKind) -> None:
    tokenizer = Tokenizer.train(TEXTS, vocab_size=400, kind=kind, tags=["<2de>", "<2en>", "<2de>"])
    assert tokenizer.tags == ["<2de>", "<2en>"]
    tokenizer.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "tokenizer.json").tags == ["<2de>", "<2en>"]


def test_a_tokenizer_that_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    texts = (f"{number}{'x' * 990}" for number in range(34_000))
    tokenizer = Tokenizer.train(texts, vocab_size=40_000, kind="words")
    with pytest.raises(InputError, match="tokenizer of 34,004 tokens takes 33 MB; .*larger than the 32 MB"):
        tokenizer.save(tmp_path / "tokenizer.json")
    assert list(tmp_path.iterdir()) == []


def test_sizes_that_could_not_be_read_back_are_refused() -> None:
    with pytest.raises(InputError, match="vocab_size is 500000; at most 300,000"):
        Tokenizer.train(TEXTS, vocab_size=500_000)
    with pytest.raises(InputError, match="tag '<x.*' has 2,002 characters; at most 1,000"):
        Tokenizer.train(TEXTS, tags=["<" + 2000 * "x" + ">"])
    with pytest.raises(InputError, match="there are 10,000 tags; at most 9,996"):
        Tokenizer.train(TEXTS, tags=[f"<{number}>" for number in range(10_000)])


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
        "from regard.data import Tokenizer\n"
        "texts = [f'{a}{b} {b}{c} {c}{a}' for a in 'abcdefgh' for b in 'ijklm' for c in 'nopqrst']\n"
        "print(Tokenizer.train(texts, vocab_size=430, kind='unigram').to_json())"
    )
    run = partial(subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run().stdout == run().stdout


def test_a_vocabulary_that_is_too_small_for_all_characters() -> None:
    with pytest.raises(InputError, match="no unigram vocabulary of 265"):
        Tokenizer.train(TEXTS, vocab_size=265, kind="unigram")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_with_punctuation_split_a_word_is_the_same_before_any_mark(kind: TokenizerKind, tmp_path: Path) -> None:
    texts = ["Mary is here.", "Is Mary here?", "Here, said Mary."] * 20
    tokenizer = Tokenizer.train(texts, vocab_size=400, kind=kind, split_punctuation=True)
    assert not [
        token for token in tokenizer.tokens.values() if token[0] != "<" and len(token) > 1 and set(token) & set(".,?")
    ]
    plain, stopped = tokenizer.encode("Is Mary here"), tokenizer.encode("Is Mary here?")
    assert stopped[: len(plain)] == plain
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    for text in ("Is Mary here?", "(Mary, it's 12.5 %!)", "…", "no mark", ""):
        assert loaded.encode(text) == tokenizer.encode(text)
        assert loaded.decode(loaded.encode(text)) == text
    with pytest.raises(InputError, match="words are taken as they are cut"):
        Tokenizer.train(texts, kind="words", split_punctuation=True)
