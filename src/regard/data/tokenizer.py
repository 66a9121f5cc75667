"""From text to token numbers and back."""

import json
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Self

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from regard.data.tokenizer_format import (
    BYTES,
    LARGEST_FILE,
    LONGEST_TOKEN,
    MOST_SPECIAL,
    MOST_TOKENS,
    SPECIAL,
    read_tokenizer_file,
)
from regard.data.tokenizer_format import END as END
from regard.data.tokenizer_format import PAD as PAD
from regard.data.tokenizer_format import SPACE as SPACE
from regard.data.tokenizer_format import START as START
from regard.data.tokenizer_format import UNKNOWN as UNKNOWN
from regard.data.tokenizer_format import TokenizerKind as TokenizerKind
from regard.errors import InputError, ModelError, RegardError
from regard.files import replaced_file

_BYTE_SET = frozenset(BYTES)

# Known to every tokenizer: then what looks like a special token has a spelling of its own.
_ALPHABET = [chr(code) for code in range(0x21, 0x7F)]
_NEVER = -1e6  # the score of a piece that text must not be cut into while it can be spelled

TOKENIZER, SOURCE_TOKENIZER = "tokenizer.json", "source-tokenizer.json"
"""In a model directory: the target's tokenizer, which is also the source's unless that has one of its own."""


class Tokenizer:
    """A tokenizer. Decoding an encoded text restores it, up to Unicode's canonical composition.

    >>> tokenizer = Tokenizer.train(["the cat sat on the mat", "the dog sat on the log"], vocab_size=290)
    >>> numbers = tokenizer.encode("the cat sat on the dog 🐕")
    >>> tokenizer.decode(numbers)
    'the cat sat on the dog 🐕'

    Characters that the training text had not are written as the bytes of their UTF-8. What looks like a special token
    in a text is text; "▁" stands for a space. The kind "words" takes text that is already cut, with `@@` where a word
    goes on, and knows the words that it was trained on.
    """

    def __init__(self, backend: Backend, kind: TokenizerKind) -> None:
        self.kind: TokenizerKind = kind
        self._backend = backend
        self._backend.encode_special_tokens = True  # text that spells "<s>" is text
        self._special = {number for number, token in backend.get_added_tokens_decoder().items() if token.special}

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        *,
        vocab_size: int = 8000,
        kind: TokenizerKind = "bpe",
        tags: Sequence[str] = (),
        split_punctuation: bool = False,
    ) -> Self:
        """Learn a vocabulary from texts. `tags` are further special tokens, such as one for each target language.

        With `split_punctuation`, no subword has a punctuation mark beside other characters.
        """
        if split_punctuation and kind == "words":
            raise InputError("split_punctuation is for subwords; words are taken as they are cut")
        special = list(dict.fromkeys([*SPECIAL, *tags]))
        for tag in tags:
            if len(tag) < 2 or tag in _BYTE_SET:
                raise InputError(
                    f"tag {tag!r} is a letter or a byte of texts; a tag has a name of its own, such as <2de>"
                )
            if len(tag) > LONGEST_TOKEN:
                raise InputError(f"tag {tag[:30]!r} has {len(tag):,} characters; at most {LONGEST_TOKEN:,} may be")
        if len(special) > MOST_SPECIAL:
            raise InputError(f"there are {len(tags):,} tags; at most {MOST_SPECIAL - len(SPECIAL):,} may be")
        if vocab_size > MOST_TOKENS:
            raise InputError(f"vocab_size is {vocab_size}; at most {MOST_TOKENS:,} may be")
        left = vocab_size - len(special) - (0 if kind == "words" else len(BYTES))
        if left < 1:
            taken = vocab_size - left
            raise InputError(f"vocab_size is {vocab_size}; special tokens and bytes alone take {taken} of it")
        if kind == "words":
            backend = _trained_words(texts, special, vocab_size)
        else:
            try:
                backend = _trained_subwords(texts, special, kind, vocab_size - len(BYTES), split_punctuation)
            except RegardError:
                raise
            except Exception as error:  # the library's: too small a vocabulary for all characters, no text at all
                raise InputError(f"no {kind} vocabulary of {vocab_size} comes of these texts: {error}") from None
            backend = _with_bytes(backend, kind, special)
        return cls(backend, kind)

    @property
    def vocab_size(self) -> int:
        """How many tokens there are, special ones among them."""
        return int(self._backend.get_vocab_size())

    @property
    def special(self) -> list[int]:
        """The numbers of the special tokens, which no text is made of."""
        return sorted(self._special)

    @property
    def tags(self) -> list[str]:
        """The special tokens that someone added, such as one for each target language."""
        return [token for token in map(self.token, self.special) if token not in SPECIAL]

    def spelled(self, number: int) -> str | int:
        """Return what a token adds to a text: characters, or a byte of one.

        >>> tokenizer = Tokenizer.train(["so it goes"], vocab_size=370)
        >>> [tokenizer.spelled(number) for number in tokenizer.encode("so ☀")]
        [' so', ' ', 226, 152, 128]
        """
        token = self.token(number)
        if number in self._special:
            return ""
        if self.kind == "words":
            return token.removesuffix("@@") if token.endswith("@@") else f"{token} "
        return int(token[3:5], 16) if token in _BYTE_SET else token.replace(SPACE, " ")

    @cached_property
    def alphabet(self) -> frozenset[str]:
        """The characters that there are pieces for; others are spelled in bytes."""
        return frozenset(char for token in self.tokens.values() if token not in _BYTE_SET for char in token)

    @cached_property
    def letters(self) -> frozenset[str]:
        """The letters and digits that there are pieces for."""
        return frozenset(filter(str.isalnum, self.alphabet))

    @cached_property
    def _byte_numbers(self) -> frozenset[int]:
        return frozenset(number for number, token in self.tokens.items() if token in _BYTE_SET)

    def has_words(self, numbers: Sequence[int]) -> bool:
        """Whether there is a letter among the pieces, other than those that are spelled in bytes."""
        if self.kind == "words":
            return True
        tokens = (self.token(number) for number in numbers if number not in self._special)
        return any(token not in _BYTE_SET and any(map(str.isalpha, token)) for token in tokens)

    def spelled_in_bytes(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return each run of bytes: what the vocabulary has no piece for.

        >>> tokenizer = Tokenizer.train(["so it goes"], vocab_size=370)
        >>> [tokenizer.decode(run) for run in tokenizer.spelled_in_bytes(tokenizer.encode("so ☀ it 日本 goes"))]
        ['☀', '日本']
        """
        runs: list[list[int]] = []
        for is_byte, run in groupby(numbers, self._byte_numbers.__contains__):
            if is_byte:
                runs.append(list(run))
        return runs

    @property
    def tokens(self) -> dict[int, str]:
        """Every token by its number."""
        return {number: token for token, number in self._backend.get_vocab().items()}

    def number(self, token: str) -> int:
        """Return the number of a token."""
        number = self._backend.token_to_id(token)
        if number is None:
            raise InputError(f"token {token!r} is not in the vocabulary of {self.vocab_size}")
        return int(number)

    def token(self, number: int) -> str:
        """Return the token of a number."""
        token = self._backend.id_to_token(number)
        if token is None:
            raise InputError(f"number {number} is not in the vocabulary of {self.vocab_size}")
        return str(token)

    def is_atomic(self, number: int) -> bool:
        """Whether a token is a special one or a byte, which nothing takes apart."""
        return number in self._special or self.token(number) in _BYTE_SET

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, without special tokens."""
        return self._as_text(self._backend.encode(text, add_special_tokens=False).ids)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Number the pieces of many texts, on all cores."""
        encoded = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [self._as_text(some.ids) for some in encoded]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Number the pieces of a text, each with where it starts and ends in the text.

        >>> tokenizer = Tokenizer.train(["so it goes"], vocab_size=370)
        >>> tokenizer.encode_with_offsets("so it")[1]
        [(0, 2), (2, 5)]
        """
        encoded = self._backend.encode(text, add_special_tokens=False)
        return self._as_text(encoded.ids), [(start, end) for start, end in encoded.offsets]

    def _as_text(self, numbers: list[int]) -> list[int]:
        # A word of a text that is cut already may be spelled like a special token, and is then one that is not known.
        if self.kind != "words" or self._special.isdisjoint(numbers):
            return numbers
        unknown = self.number(UNKNOWN)
        return [unknown if number in self._special else number for number in numbers]

    def decode(self, numbers: Sequence[int]) -> str:
        """Join pieces again, leaving special tokens out, and bytes that are not UTF-8."""
        tokens = [self.token(number) for number in numbers if number not in self._special]
        if self.kind == "words":
            return self.readable(" ".join(tokens))
        text = ""
        for is_byte, pieces in groupby(tokens, _BYTE_SET.__contains__):
            run = list(pieces)
            # The library would take a whole run for garbage where one byte of it is.
            text += _spelled(run) if is_byte else "".join(run).replace(SPACE, " ")
        return text.removeprefix(" ")

    def readable(self, text: str) -> str:
        """Return a text as people write it: the same, but for text that is already cut, whose words are joined."""
        return text.replace("@@ ", "").removesuffix("@@") if self.kind == "words" else text

    def save(self, path: Path) -> None:
        """Write `tokenizer.json`, in the format of the tokenizers library."""
        content = f"{self.to_json()}\n".encode()
        if len(content) > LARGEST_FILE:
            raise InputError(
                f"a tokenizer of {self.vocab_size:,} tokens takes {len(content) / 2**20:,.0f} MB; "
                f"{path} would be larger than the {LARGEST_FILE >> 20} MB that are read"
            )
        with replaced_file(path) as beside:
            beside.write_bytes(content)

    def to_json(self) -> str:
        """Write the whole tokenizer out; equal tokenizers give equal text."""
        return str(self._backend.to_str(pretty=True))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read `tokenizer.json`; what `train` does not write is refused before anything runs it."""
        content, kind = read_tokenizer_file(path)
        try:
            backend = Backend.from_str(json.dumps(content))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of the library is no Exception
            raise ModelError(f"{path} is not a tokenizer: {error}") from None
        return cls(backend, kind)

    @property
    def merges(self) -> list[tuple[str, str]]:
        """The merges of a BPE model, first learned first."""
        model = json.loads(self._backend.to_str())["model"]
        return [tuple(pair) for pair in model.get("merges", [])]


def load_tokenizers(directory: Path) -> tuple[Tokenizer, Tokenizer]:
    """Read the source's and the target's tokenizer of a model directory; they may be one."""
    target = Tokenizer.load(directory / TOKENIZER)
    own = directory / SOURCE_TOKENIZER
    return (Tokenizer.load(own) if own.exists() else target), target


def _spelled(run: Iterable[str]) -> str:
    return bytes(int(token[3:5], 16) for token in run).decode("utf-8", errors="ignore")


def _trained_words(texts: Iterable[str], special: list[str], vocab_size: int) -> Backend:
    backend = Backend(models.WordLevel(unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=special, show_progress=False)
    _learn(backend, map(_without_long_words, texts), trainer)
    return backend


def _without_long_words(text: str) -> str:
    """Leave out words that are too long for a token; texts have them all the same, as unknown ones."""
    if len(text) <= LONGEST_TOKEN:
        return text
    return " ".join(word for word in text.split() if len(word) <= LONGEST_TOKEN)


def _trained_subwords(
    texts: Iterable[str], special: list[str], kind: TokenizerKind, vocab_size: int, split_punctuation: bool
) -> Backend:
    if kind == "bpe":
        backend = Backend(models.BPE(unk_token=UNKNOWN))
        trainer: Any = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=special,
            initial_alphabet=_ALPHABET,
            max_token_length=LONGEST_TOKEN,
            show_progress=False,
        )
    else:
        backend = Backend(models.Unigram())
        trainer = trainers.UnigramTrainer(
            vocab_size=vocab_size,
            special_tokens=special,
            initial_alphabet=_ALPHABET,
            unk_token=UNKNOWN,
            show_progress=False,
        )
    # Every word has a space before it, the first one too; decoding takes that one off again.
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Prepend(SPACE)])
    words = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="never")
    backend.pre_tokenizer = (
        pre_tokenizers.Sequence([words, pre_tokenizers.Punctuation("isolated")]) if split_punctuation else words
    )
    backend.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Fuse(), decoders.Replace(SPACE, " "), decoders.Strip(" ", 1, 0)]
    )
    _learn(backend, texts, trainer)
    return backend


def _learn(backend: Backend, texts: Iterable[str], trainer: Any) -> None:
    # In a thread of its own: the library comes back only when it is done, and signals are heard in the main one.
    # A daemon, so that a signal need not wait for it.
    done: Future[None] = Future()

    def learn() -> None:
        try:
            backend.train_from_iterator(texts, trainer)
            done.set_result(None)
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=learn, daemon=True).start()
    done.result()


def _with_bytes(backend: Backend, kind: TokenizerKind, special: list[str]) -> Backend:
    """Return the model a token for each byte, behind the special ones; the trainers have no place for them.

    They are part of the model and not special tokens, so that a text that spells one does not become one.
    """
    content = json.loads(backend.to_str())
    model = content["model"]
    model["byte_fallback"] = True
    # A text may spell a special token, or a byte's, so often that it was learned; it would be taken for that.
    first = [*special, *BYTES]
    taken = set(first)
    if kind == "bpe":
        model["merges"] = [pair for pair in model["merges"] if not {*pair, "".join(pair)} & taken]
        learned = [token for token in sorted(model["vocab"], key=model["vocab"].get) if token not in taken]
        model["vocab"] = {token: number for number, token in enumerate([*first, *learned])}
    else:
        pieces = _in_one_order({token: score for token, score in model["vocab"] if token not in taken})
        model["vocab"] = [[token, _NEVER] for token in first] + pieces
    return Backend.from_str(json.dumps(content))


def _in_one_order(scores: dict[str, float]) -> list[list[Any]]:
    """Return pieces and their scores, likeliest first, the same for the same texts.

    The library goes through them in another order each time. Sums then differ in their last digits; and characters that
    it has no score for get the least one of all, one ten-thousandth, two, three above it, whichever comes first.
    """
    least = min(scores.values(), default=0.0)

    def given(token: str) -> bool:
        place = (scores[token] - least) * 10_000
        return len(token) == 1 and place < len(scores) and abs(place - round(place)) < 1e-3

    rare = sorted(filter(given, scores))
    scores |= dict(zip(rare, sorted((scores[token] for token in rare), reverse=True), strict=True))
    rounded = ([token, round(score, 6)] for token, score in scores.items())
    return sorted(rounded, key=lambda piece: (-piece[1], piece[0]))
