"""What a `tokenizer.json` may hold: what `Tokenizer.train` writes, and no other part that the library could run."""

import json
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from regard.errors import ModelError
from regard.files import read_json

PAD, START, END, UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"
SPECIAL = [PAD, START, END, UNKNOWN]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPACE = "▁"

TokenizerKind = Literal["bpe", "unigram", "words"]

MOST_TOKENS = 300_000
MOST_SPECIAL = 10_000
LONGEST_TOKEN = 1_000
"""In characters. What a model writes is at most so much longer than the number of its tokens."""
LARGEST_FILE = 32 << 20

_KINDS: dict[str, TokenizerKind] = {"BPE": "bpe", "Unigram": "unigram", "WordLevel": "words"}
_EVERY_TOKENIZER = {"version": "1.0", "truncation": None, "padding": None, "post_processor": None}
_SUBWORDS = {
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Prepend", "prepend": SPACE}]},
    "pre_tokenizer": {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "never", "split": True},
    "decoder": {
        "type": "Sequence",
        "decoders": [
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    },
}
_SPLIT_PUNCTUATION = {
    **_SUBWORDS,
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [_SUBWORDS["pre_tokenizer"], {"type": "Punctuation", "behavior": "Isolated"}],
    },
}
_WORDS = {"normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": None}
_PARTS: dict[TokenizerKind, dict[str, Any]] = {"bpe": _SUBWORDS, "unigram": _SUBWORDS, "words": _WORDS}
_MODELS: dict[TokenizerKind, dict[str, Any]] = {
    "bpe": {
        "type": "BPE",
        "dropout": None,
        "unk_token": UNKNOWN,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": True,
        "ignore_merges": False,
    },
    "unigram": {"type": "Unigram", "unk_id": SPECIAL.index(UNKNOWN), "byte_fallback": True},
    "words": {"type": "WordLevel", "unk_token": UNKNOWN},
}
_SPECIAL_TOKEN = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def read_tokenizer_file(path: Path) -> tuple[dict[str, Any], TokenizerKind]:
    """Read `tokenizer.json` and check all of it; return its content and the kind of its model."""
    content = read_json(path, largest=LARGEST_FILE)
    try:
        return content, _checked(content)
    except _FormatError as error:
        raise ModelError(f"{path} is not a tokenizer that regard writes: {error}") from None


class _FormatError(Exception):
    pass


def _checked(content: dict[str, Any]) -> TokenizerKind:
    model = content.get("model")
    if not isinstance(model, dict):
        raise _FormatError(f"its model is {_short(model)}; an object was expected")
    name = model.get("type")
    if not isinstance(name, str) or name not in _KINDS:
        raise _FormatError(f"its model's type is {_short(name)}; it is one of {', '.join(_KINDS)}")
    kind = _KINDS[name]
    parts = _SPLIT_PUNCTUATION if kind != "words" and _has_several_cuts(content) else _PARTS[kind]
    _compare(content, {**_EVERY_TOKENIZER, **parts}, "its", but=frozenset({"added_tokens", "model"}))
    learned = frozenset({"vocab", "merges"} if kind == "bpe" else {"vocab"})
    _compare(model, _MODELS[kind], "its model's", but=learned)
    tokens = _scored_tokens(model["vocab"]) if kind == "unigram" else _numbered_tokens(model["vocab"])
    _check_tokens(tokens)
    _check_special_tokens(content["added_tokens"], tokens)
    known = frozenset(tokens)
    if kind != "words" and (missing := [byte for byte in BYTES if byte not in known]):
        raise _FormatError(f"its vocabulary has no token {missing[0]} for a byte")
    if kind == "bpe":
        _check_merges(model["merges"], known)
    return kind


def _has_several_cuts(content: dict[str, Any]) -> bool:
    cut = content.get("pre_tokenizer")
    return isinstance(cut, dict) and cut.get("type") == "Sequence"


def _compare(found: dict[str, Any], expected: dict[str, Any], whose: str, but: frozenset[str] = frozenset()) -> None:
    """Compare all values but some; as JSON, in which 1, 1.0 and true differ."""
    if missing := sorted((expected.keys() | but) - found.keys()):
        raise _FormatError(f"{whose} {missing[0]} is missing")
    if unknown := sorted(found.keys() - expected.keys() - but):
        raise _FormatError(f"{whose} {_short(unknown[0])} is not a known key")
    for key, value in expected.items():
        if json.dumps(found[key], sort_keys=True) != json.dumps(value, sort_keys=True):
            raise _FormatError(f"{whose} {key} is {_short(found[key])}; {json.dumps(value)} was expected")


def _numbered_tokens(vocabulary: Any) -> list[str]:
    """Return the tokens of a BPE or word vocabulary, in the order of their numbers."""
    if not isinstance(vocabulary, dict) or not all(type(number) is int for number in vocabulary.values()):
        raise _FormatError("its vocabulary is not an object of tokens and their numbers")
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    for number, token in enumerate(tokens):
        if vocabulary[token] != number:
            raise _FormatError(
                f"token {_short(token)} has number {_short(vocabulary[token])}; the {len(tokens):,} tokens are "
                f"numbered from 0 without a gap"
            )
    return tokens


def _scored_tokens(vocabulary: Any) -> list[str]:
    """Return the tokens of a unigram vocabulary."""
    if not isinstance(vocabulary, list):
        raise _FormatError("its vocabulary is not a list of tokens and their scores")
    for piece in vocabulary:
        if not (
            isinstance(piece, list)
            and [type(part) for part in piece] in ([str, float], [str, int])
            and abs(piece[1]) <= 1e9  # and a number
        ):
            raise _FormatError(f"its vocabulary has {_short(piece)}; a token and its score were expected")
    tokens = [token for token, _ in vocabulary]
    if len(set(tokens)) < len(tokens):
        raise _FormatError("its vocabulary has a token twice")
    return tokens


def _check_tokens(tokens: list[str]) -> None:
    if len(tokens) > MOST_TOKENS:
        raise _FormatError(f"its vocabulary has {len(tokens):,} tokens; at most {MOST_TOKENS:,} are read")
    for token in tokens:
        if not 0 < len(token) <= LONGEST_TOKEN:
            raise _FormatError(f"token {_short(token)} has {len(token):,} characters; 1 to {LONGEST_TOKEN:,} may be")
        if not token.isascii() and any("\ud800" <= letter <= "\udfff" for letter in token):
            raise _FormatError(f"token {_short(token)} has half a character (a lone surrogate)")


def _check_special_tokens(added: Any, tokens: list[str]) -> None:
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise _FormatError(f"its added_tokens are {_short(added)}; a list of objects was expected")
    if not len(SPECIAL) <= len(added) <= min(MOST_SPECIAL, len(tokens)):
        most = min(MOST_SPECIAL, len(tokens))
        raise _FormatError(f"its added_tokens are {len(added):,}; {len(SPECIAL)} to {most:,} were expected")
    for number, (token, expected) in enumerate(zip(added, tokens, strict=False)):
        first = SPECIAL[number] if number < len(SPECIAL) else expected
        _compare(token, {"id": number, "content": first, **_SPECIAL_TOKEN}, f"added token {number}'s")
        if expected != first:
            raise _FormatError(f"token {number} of its vocabulary is {_short(expected)}; {first} was expected")
        if expected in BYTES:
            raise _FormatError(f"its added_tokens have {expected}, which stands for a byte of texts")


def _check_merges(merges: Any, known: frozenset[str]) -> None:
    if not isinstance(merges, list):
        raise _FormatError("its merges are not a list")
    for pair in merges:
        if not isinstance(pair, list) or [type(part) for part in pair] != [str, str]:
            raise _FormatError(f"its merges have {_short(pair)}; two tokens were expected")
        if unknown := next((token for token in chain(pair, ("".join(pair),)) if token not in known), None):
            raise _FormatError(f"its merges have {_short(pair)}, and {_short(unknown)} is not in its vocabulary")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 100 else f"{text[:100]} … ({len(text):,} characters)"
