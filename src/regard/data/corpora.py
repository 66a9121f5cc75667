"""Where pairs of texts come from: two parallel files, columns of a table, fields of JSON lines; plain or gzip."""

import codecs
import gzip
import json
import zlib
from abc import abstractmethod
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regard.configs import Config
from regard.data.augmentation import AUGMENTATION_VERSION, Augmentation, augmented
from regard.data.noise import NOISE_VERSION, Pair, noised
from regard.errors import DataError


class Corpus(Config):
    """A source of pairs, read as a stream: memory does not grow with its size."""

    weight: Annotated[float, Field(gt=0.0, le=1000.0, strict=True)] = 1.0
    """How often its pairs are seen in an epoch, beside those of other corpora."""
    tag: Annotated[str, Field(min_length=1)] | None = None
    """A special token put before each source, such as <2de>: one model for several languages or tasks."""
    rough: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """To what share of its pairs a noisy copy is added: no capitals, no full stop, several in a line."""
    augment: Augmentation | None = None
    """What else is added for translation: numbers, addresses and names, with placeholders for what is copied."""

    def pairs(self) -> Iterator[Pair]:
        """Return the pairs in order, noisy copies and augmented ones among them."""
        pairs = noised(self.read(), self.rough)
        return pairs if self.augment is None else augmented(pairs, self.augment)

    @abstractmethod
    def read(self) -> Iterator[Pair]:
        """Read the pairs as they are."""

    @abstractmethod
    def files(self) -> list[Path]:
        """Return the files that they are read from."""

    def made_by(self) -> str:
        """Return what decides about the pairs beside the files and the fields: how noise is added."""
        noise = f"roughness {NOISE_VERSION}" if self.rough else ""
        return noise if self.augment is None else f"{noise} augmentation {AUGMENTATION_VERSION}"


class ParallelFiles(Corpus):
    """Line n of one file is the source of line n of the other."""

    kind: Literal["parallel"] = "parallel"
    source: Path
    target: Path

    def read(self) -> Iterator[Pair]:
        """Read both files side by side."""
        number = 0
        for number, (source, target) in enumerate(zip_longest(read_lines(self.source), read_lines(self.target)), 1):
            if source is None or target is None:
                short, long = (self.source, self.target) if source is None else (self.target, self.source)
                raise DataError(
                    f"{short} ends after line {number - 1}, {long} goes on; parallel files have as many lines"
                )
            yield source, target

    def files(self) -> list[Path]:
        """Return the two files."""
        return [self.source, self.target]


class TabSeparated(Corpus):
    """Two columns of a table whose columns are separated by tabs, counted from 1."""

    kind: Literal["tsv"] = "tsv"
    path: Path
    source_column: Annotated[int, Field(ge=1)] = 1
    target_column: Annotated[int, Field(ge=1)] = 2

    def read(self) -> Iterator[Pair]:
        """Read the two columns of each line."""
        needed = max(self.source_column, self.target_column)
        for number, line in enumerate(read_lines(self.path), 1):
            cells = line.split("\t")
            if len(cells) < needed:
                raise DataError(f"{self.path}, line {number} has {len(cells)} columns; column {needed} was asked for")
            yield cells[self.source_column - 1], cells[self.target_column - 1]

    def files(self) -> list[Path]:
        """Return the file."""
        return [self.path]


class JsonLines(Corpus):
    """Two fields of the objects of a file that has one on each line."""

    kind: Literal["jsonl"] = "jsonl"
    path: Path
    source_field: str
    target_field: str

    def read(self) -> Iterator[Pair]:
        """Read the two fields of each object."""
        for number, line in enumerate(read_lines(self.path), 1):
            try:
                content = json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(f"{self.path}, line {number} is not JSON: {error.msg}") from None
            except (ValueError, RecursionError) as error:  # numbers without end, brackets without end
                raise DataError(f"{self.path}, line {number} is not JSON that can be read: {error}") from None
            yield self._field(content, self.source_field, number), self._field(content, self.target_field, number)

    def files(self) -> list[Path]:
        """Return the file."""
        return [self.path]

    def _field(self, content: object, name: str, number: int) -> str:
        if not isinstance(content, dict) or name not in content:
            raise DataError(f"{self.path}, line {number} has no field {name!r}")
        value = content[name]
        if not isinstance(value, str):
            raise DataError(f"{self.path}, line {number}: field {name!r} is {type(value).__name__}, not text")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise DataError(
                f"{self.path}, line {number}: field {name!r} has half a character (a lone surrogate)"
            ) from None
        return value


def read_lines(path: Path) -> Iterator[str]:
    """Read the lines of a text file without their ends; gzip is known by its first bytes, not by a name."""
    number = 0  # of the last line that was read whole
    try:
        with path.open("rb") as raw:
            compressed = raw.read(2) == b"\x1f\x8b"
        # Lines end at \n alone: other separators of Unicode's belong to the text, and would shift parallel files.
        with gzip.open(path, "rb") if compressed else path.open("rb") as file:
            for line in file:
                if number == 0:
                    line = line.removeprefix(codecs.BOM_UTF8)  # some editors mark a file so; it is no text
                yield line.rstrip(b"\r\n").decode("utf-8")
                number += 1
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, line {number + 1} is not UTF-8: byte {error.start + 1} is wrong") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read after line {number}: {error}") from None
