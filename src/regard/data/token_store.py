"""Encoded corpora on disk: token numbers in flat files that are mapped into memory, made once and found by content."""

import hashlib
import json
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from regard.data.corpora import Corpus, Example
from regard.data.tokenizer import Tokenizer
from regard.errors import DataError, InputError, WriteError
from regard.files import new_directory

FORMAT = 2
LONGEST_LINE = 1_000_000  # characters; longer ones are left out, and counted
_CHUNK = 10_000  # pairs encoded at a time: enough to keep all cores busy, little enough to forget about


class TokenColumn:
    """The token sequences of one side of a corpus. A sequence is read from disk when it is asked for."""

    def __init__(self, tokens: NDArray[Any], ends: NDArray[np.int64]) -> None:
        self._tokens, self._ends = tokens, ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> NDArray[Any]:
        start = 0 if index == 0 else int(self._ends[index - 1])
        return self._tokens[start : int(self._ends[index])]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How long each sequence is."""
        return np.diff(self._ends, prepend=0)


class EncodedCorpus:
    """Pairs as token numbers, in the order of the corpus."""

    def __init__(self, path: Path) -> None:
        self.fingerprint = path.name
        """What the corpus and its tokenizers hold, in 32 letters."""
        self.manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        self.source, self.target = (_mapped(path, side, self.manifest["dtype"]) for side in ("source", "target"))

    def __len__(self) -> int:
        return len(self.source)

    @property
    def empty(self) -> int:
        """How many pairs were left out because one of their sides was empty."""
        return int(self.manifest["empty"])

    @property
    def oversized(self) -> int:
        """How many pairs were left out because a side was longer than any sentence is."""
        return int(self.manifest["oversized"])


class ExampleEncoder(Protocol):
    """How the examples of a corpus become pairs of token sequences; a task is one."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of an example."""

    @property
    def identity(self) -> str:
        """What decides about encoded examples beside their texts; empty for pairs of texts as they are."""

    def texts(self, example: Example) -> tuple[str, ...]:
        """Return the texts of an example, none of which may be empty."""

    @property
    def longest_part(self) -> int:
        """How many tokens the parts have that examples are cut into; 0 if they are not cut."""

    def encode(
        self, examples: Sequence[Example], source: Tokenizer, target: Tokenizer
    ) -> Sequence[tuple[list[int], list[int]]]:
        """Return the token numbers of examples, sources with their targets."""


def encode_corpus(
    corpus: Corpus, encoder: ExampleEncoder, source: Tokenizer, target: Tokenizer, cache: Path
) -> EncodedCorpus:
    """Encode a corpus, or find it in the cache if the same content was encoded by the same tokenizers before."""
    path = cache / _fingerprint(corpus, encoder, source, target)
    if not _is_whole(path):
        shutil.rmtree(path, ignore_errors=True)  # what is damaged is made again
        try:
            with new_directory(path) as fresh:
                _write(corpus, encoder, source, target, fresh)
        except WriteError:
            # Another process that encoded the same content came first; any other trouble is trouble.
            if not _is_whole(path):
                raise
    return EncodedCorpus(path)


def _is_whole(path: Path) -> bool:
    """Whether an encoded corpus is there, and its files are as long as they say."""
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        pairs, width = int(manifest["pairs"]), np.dtype(manifest["dtype"]).itemsize
        for side in ("source", "target"):
            ends = _memory_map(path / f"{side}.ends", "int64")
            if len(ends) != pairs or (path / f"{side}.tokens").stat().st_size != width * int(ends[-1]):
                return False
    except (OSError, ValueError, TypeError, KeyError, IndexError):
        return False
    return True


def _write(corpus: Corpus, encoder: ExampleEncoder, source: Tokenizer, target: Tokenizer, path: Path) -> None:
    dtype = "uint16" if max(source.vocab_size, target.vocab_size) <= 2**16 else "uint32"
    count = empty = oversized = 0
    with _SideWriter(path, "source", dtype) as sources, _SideWriter(path, "target", dtype) as targets:
        for chunk in _encoded(corpus, encoder, source, target):
            empty += chunk.empty
            oversized += chunk.oversized
            count += len(chunk.sources)
            sources.write(chunk.sources)
            targets.write(chunk.targets)
    if count == 0:
        files = ", ".join(map(str, corpus.files()))
        raise DataError(
            f"{files}: there are no examples whose texts are not empty and of at most {LONGEST_LINE:,} characters"
        )
    content = {"format": FORMAT, "dtype": dtype, "pairs": count, "empty": empty, "oversized": oversized}
    (path / "manifest.json").write_text(json.dumps(content) + "\n", encoding="utf-8")


def is_empty(texts: tuple[str, ...]) -> bool:
    """Whether one of the texts of an example is empty."""
    return not all(text.strip() for text in texts)


def is_oversized(example: Example, encoder: ExampleEncoder) -> bool:
    """Whether a text of an example is longer than any that is read whole; texts that are cut may be of any length."""
    return encoder.longest_part == 0 and max(map(len, encoder.texts(example))) > LONGEST_LINE


@dataclass(frozen=True)
class _Chunk:
    sources: list[list[int]]
    targets: list[list[int]]
    empty: int
    oversized: int


def _encoded(corpus: Corpus, encoder: ExampleEncoder, source: Tokenizer, target: Tokenizer) -> Iterator[_Chunk]:
    """Return one chunk after the other; the next ones are encoded meanwhile."""

    def encode(examples: list[Example]) -> _Chunk:
        full = [example for example in examples if not is_empty(encoder.texts(example))]
        kept = [example for example in full if not is_oversized(example, encoder)]
        try:
            pairs = encoder.encode(kept, source, target)
        except (DataError, InputError) as error:
            raise DataError(f"{', '.join(map(str, corpus.files()))}: {error}") from None
        sides = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        return _Chunk(*sides, empty=len(examples) - len(full), oversized=len(full) - len(kept))

    with ThreadPoolExecutor(max_workers=2) as workers:
        ahead: deque[Future[_Chunk]] = deque()
        for chunk in _chunks(corpus.examples(encoder.fields)):
            ahead.append(workers.submit(encode, chunk))
            if len(ahead) > 2:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


class _SideWriter:
    """Appends sequences to a file of tokens and a file of where they end."""

    def __init__(self, path: Path, side: str, dtype: str) -> None:
        self._files: list[BinaryIO] = [(path / f"{side}.{kind}").open("wb") for kind in ("tokens", "ends")]
        self._dtype, self._end = dtype, 0

    def __enter__(self) -> "_SideWriter":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()

    def write(self, sequences: Sequence[Sequence[int]]) -> None:
        lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
        ends = self._end + np.cumsum(lengths)
        flat = np.fromiter(chain.from_iterable(sequences), dtype=self._dtype, count=int(lengths.sum()))
        self._files[0].write(flat.tobytes())
        self._files[1].write(ends.tobytes())
        self._end = int(ends[-1]) if len(ends) else self._end


def _mapped(path: Path, side: str, dtype: str) -> TokenColumn:
    tokens = _memory_map(path / f"{side}.tokens", dtype)
    return TokenColumn(tokens, _memory_map(path / f"{side}.ends", "int64"))


def _memory_map(path: Path, dtype: str) -> NDArray[Any]:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r")


def _chunks(examples: Iterable[Example]) -> Iterator[list[Example]]:
    examples = iter(examples)
    while chunk := list(islice(examples, _CHUNK)):
        yield chunk


def _fingerprint(corpus: Corpus, encoder: ExampleEncoder, source: Tokenizer, target: Tokenizer) -> str:
    # Where the files are does not count, what they hold does. An option that is not set (None) does not count either:
    # what was encoded before there was such an option is found again.
    placeless = {"weight", "tag", "task", "path", "source", "target"}
    layout = corpus.model_dump(mode="json", exclude=placeless, exclude_none=True)
    layout["rough"] = layout.pop("noise")  # its first name: what was encoded before is found again
    digest = hashlib.sha256(json.dumps([FORMAT, corpus.cache_key(), layout], sort_keys=True).encode())
    digest.update(encoder.identity.encode())
    for file in corpus.files():
        try:
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        except OSError as error:
            raise DataError(f"{file} cannot be read: {error.strerror}") from None
    for tokenizer in (source, target):
        digest.update(tokenizer.to_json().encode())
    return digest.hexdigest()[:32]
