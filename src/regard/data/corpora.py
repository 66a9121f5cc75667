"""Where examples come from: parallel files, columns of a table, fields of JSON lines, texts; plain or gzip."""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from regard.configs import Config
from regard.data.augmentation import AUGMENTATION_VERSION, Augmentation, augmented
from regard.data.examples import Example as Example
from regard.data.examples import FieldError, field_value, from_texts
from regard.data.noise import NOISE_VERSION, Pair, noised
from regard.data.reading import matching_files, parsed_json, read_text
from regard.data.reading import read_lines as read_lines
from regard.errors import ConfigError, DataError, InputError

Fields = tuple[str, ...]
"""The names of the fields that a task needs, such as `("document", "summary")`."""

_PAIR = ("source", "target")
_NOT_NOISED = ("answers", "label")


def with_current_names(corpus: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a corpus under their current names: early run files say "rough" for "noise"."""
    return {"noise" if key == "rough" else key: value for key, value in corpus.items()}


class Corpus(Config):
    """A source of examples, read as a stream: memory does not grow with its size."""

    weight: Annotated[float, Field(gt=0.0, le=1000.0, strict=True)] = 1.0
    """How often each example is seen per epoch; with 0.5, half of the examples are."""
    tag: Annotated[str, Field(min_length=1)] | None = None
    """A special token put before each source, such as <2de>: one model for several languages or tasks."""
    task: str | None = None
    """The kind of task that it is for, in a run of several tasks."""
    noise: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Fraction of the pairs for which a noisy copy is added: no capitals, no final punctuation, joined sentences."""
    augment: Augmentation | None = None
    """What else is added for translation: numbers, addresses and names, with placeholders for what is copied."""

    @model_validator(mode="before")
    @classmethod
    def _by_current_names(cls, data: Any) -> Any:
        return with_current_names(data) if isinstance(data, dict) else data

    def examples(self, fields: Fields) -> Iterator[Example]:
        """Return the examples in order, with the fields that a task needs, noisy copies among them."""
        if not self.noise and self.augment is None:
            return self.read_examples(fields)
        if len(fields) != 2 or set(fields) & set(_NOT_NOISED):
            name = "noise" if self.noise else "augment"
            raise ConfigError(f"{name} is for tasks with a source and a target text; this one has {_listed(fields)}")
        first, last = fields
        pairs = ((example[first], example[last]) for example in self.read_examples(fields))
        return ({first: source, last: target} for source, target in self._varied(pairs))

    def pairs(self) -> Iterator[Pair]:
        """Return the pairs of source and target in order, noisy copies and augmented ones among them."""
        return self._varied(self.read())

    def _varied(self, pairs: Iterator[Pair]) -> Iterator[Pair]:
        """Return pairs, with noisy copies and augmented ones among them."""
        pairs = noised(pairs, self.noise)
        return pairs if self.augment is None else augmented(pairs, self.augment)

    @abstractmethod
    def read_examples(self, fields: Fields) -> Iterator[Example]:
        """Read the examples as they are. Fields that it cannot have are refused before anything is read."""

    def read(self) -> Iterator[Pair]:
        """Read the pairs of source and target as they are."""
        return ((example["source"], example["target"]) for example in self.read_examples(_PAIR))

    @abstractmethod
    def files(self) -> list[Path]:
        """Return the files that they are read from."""

    def cache_key(self) -> str:
        """Return what decides about the pairs beside the files and the fields: how noise is added."""
        noise = f"roughness {NOISE_VERSION}" if self.noise else ""  # the name that stored corpora have
        return noise if self.augment is None else f"{noise} augmentation {AUGMENTATION_VERSION}"


class PairCorpus(Corpus):
    """A corpus of pairs: its sources are the first field of a task, its targets the last."""

    def read_examples(self, fields: Fields) -> Iterator[Example]:
        """Read the pairs, for a task of two fields."""
        kind = getattr(self, "kind", type(self).__name__)
        first, last = _two_fields(fields, f"a corpus of kind {kind!r} is")
        return (from_texts({first: source, last: target}) for source, target in self.read())

    @abstractmethod
    def read(self) -> Iterator[Pair]:
        """Read the pairs as they are."""


class ParallelFiles(PairCorpus):
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
    """Columns of a table, separated by tabs and counted from 1: those of a task's fields in their order."""

    kind: Literal["tsv"] = "tsv"
    path: Path
    source_column: Annotated[int, Field(ge=1)] = 1
    """The column of the first field, in a task of two."""
    target_column: Annotated[int, Field(ge=1)] = 2
    """The column of the last field, in a task of two."""
    columns: dict[str, Annotated[int, Field(ge=1)]] | None = None
    """The column of each field, such as `{ context = 1, question = 2, answers = 3 }`."""

    def check(self) -> None:
        """Raise an `InputError` where fields do not fit together."""
        if self.columns is not None and self._swapped:
            raise InputError("columns names all columns; source_column and target_column are not set beside it")

    def read_examples(self, fields: Fields) -> Iterator[Example]:
        """Read the columns of each line."""
        return self._rows(self._columns(fields))

    def files(self) -> list[Path]:
        """Return the file."""
        return [self.path]

    @property
    def _swapped(self) -> bool:
        return (self.source_column, self.target_column) != (1, 2)

    def _columns(self, fields: Fields) -> dict[str, int]:
        if self.columns is not None:
            _check_names("columns", self.columns, fields, self.path)
            for field in fields:
                if field not in self.columns:
                    raise ConfigError(f"columns has no {field!r} of {self.path}; the task needs {_listed(fields)}")
            return self.columns
        if not self._swapped:
            return {field: column for column, field in enumerate(fields, 1)}
        first, last = _two_fields(fields, "source_column and target_column are")
        return {first: self.source_column, last: self.target_column}

    def _rows(self, columns: Mapping[str, int]) -> Iterator[Example]:
        last, needed = max(columns.items(), key=lambda entry: entry[1])
        for number, line in enumerate(read_lines(self.path), 1):
            cells = line.split("\t")
            if len(cells) < needed:
                raise DataError(f"{self.path}, line {number} has {len(cells)} columns; {last} is column {needed}")
            yield from_texts({field: cells[column - 1] for field, column in columns.items()})


class JsonLines(Corpus):
    """Fields of the objects of a file that has one on each line: those of a task, or others in their place."""

    kind: Literal["jsonl"] = "jsonl"
    path: Path
    source_field: str | None = None
    """What the first field of a task of two is called in the file, where that is another name."""
    target_field: str | None = None
    """What the last one is called."""
    fields: dict[str, str] | None = None
    """What fields are called in the file, such as `{ document = "abstract" }`."""

    def check(self) -> None:
        """Raise an `InputError` where fields do not fit together."""
        if self.fields is not None and (self.source_field is not None or self.target_field is not None):
            raise InputError("fields names all fields; source_field and target_field are not set beside it")

    def read_examples(self, fields: Fields) -> Iterator[Example]:
        """Read the fields of each object."""
        return self._objects(self._names(fields))

    def files(self) -> list[Path]:
        """Return the file."""
        return [self.path]

    def _names(self, fields: Fields) -> dict[str, str]:
        if self.source_field is None and self.target_field is None:
            renamed = self.fields or {}
            _check_names("fields", renamed, fields, self.path)
            return {field: renamed.get(field, field) for field in fields}
        first, last = _two_fields(fields, "source_field and target_field are")
        return {first: self.source_field or first, last: self.target_field or last}

    def _objects(self, names: Mapping[str, str]) -> Iterator[Example]:
        for number, line in enumerate(read_lines(self.path), 1):
            content = parsed_json(line, f"{self.path}, line {number}")
            yield {field: self._value(content, field, name, number) for field, name in names.items()}

    def _value(self, content: Any, field: str, name: str, number: int) -> Any:
        if name == "answers" and isinstance(content, dict) and name not in content and "answer" in content:
            name = "answer"
        if not isinstance(content, dict) or name not in content:
            raise DataError(f"{self.path}, line {number} has no field {name!r}")
        try:
            return field_value(field, content[name])
        except FieldError as error:
            raise DataError(f"{self.path}, line {number}: field {name!r} {error}") from None


class TextFiles(Corpus):
    """Lines of text files, for tasks of one field."""

    kind: Literal["text"] = "text"
    path: Path | Annotated[tuple[Path, ...], Field(min_length=1)]
    """A file, or several; a name may be a pattern, such as `books/*.txt`."""
    whole: bool = False
    """Each file is one text, not each of its lines."""

    def read_examples(self, fields: Fields) -> Iterator[Example]:
        """Read the lines, or the files."""
        if len(fields) != 1:
            raise ConfigError(f"{self.kind} files have one field, a text; the task needs {_listed(fields)}")
        texts = (text for file in self.files() for text in ([read_text(file)] if self.whole else read_lines(file)))
        return ({fields[0]: text} for text in texts)

    def files(self) -> list[Path]:
        """Return the files in the order that they are named in, those of a pattern in the order of their names."""
        paths = self.path if isinstance(self.path, tuple) else (self.path,)
        return [file for path in paths for file in matching_files(path)]


def _two_fields(fields: Fields, what: str) -> tuple[str, str]:
    """Return the fields of a task that has two; they are all that something is for."""
    match fields:
        case (first, last):
            return first, last
    raise ConfigError(f"{what} for tasks of two fields; this one has {_listed(fields)}")


def _check_names(key: str, names: Collection[str], fields: Fields, path: Path) -> None:
    """Refuse fields that a corpus names, and its task does not have."""
    for name in names:
        if name not in fields:
            raise ConfigError(f"{key} of {path} has {name!r}, which is no field of the task: {_listed(fields)}")


def check_fields(kind: str, known: Collection[str], fields: Fields) -> None:
    """Refuse fields that a corpus with fields of its own does not have."""
    for field in fields:
        if field not in known:
            raise ConfigError(f"a corpus of kind {kind!r} has no {field!r}; its fields are {_listed(known)}")


def _listed(fields: Collection[str]) -> str:
    return ", ".join(fields)
