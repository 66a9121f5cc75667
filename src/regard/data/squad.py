"""SQuAD's JSON, v1.1 and v2: questions about contexts, with answers and where they start; predictions for them."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from regard.data.corpora import Corpus, Example, Fields, check_fields
from regard.data.examples import Answer as Answer
from regard.data.examples import FieldError, answer_at, checked_text
from regard.data.reading import check_read_twice, parsed_json, read_text
from regard.errors import DataError
from regard.files import replaced_file


@dataclass(frozen=True)
class SquadExample:
    """A question about a context."""

    id: str
    title: str
    """Of the article that the context is from; empty where it has none."""
    context: str
    question: str
    answers: list[Answer]
    """All that count as right; none for a question that the context does not answer."""
    is_impossible: bool = False
    """Whether the context does not answer it (v2)."""
    plausible_answers: list[Answer] = field(default_factory=list)
    """Wrong answers that look right, to a question that the context does not answer (v2)."""


@dataclass(frozen=True)
class SquadDataset:
    """The questions of a file, and all that the file holds, unknown keys among it."""

    examples: list[SquadExample]
    content: dict[str, Any]

    @classmethod
    def of(cls, examples: Iterable[SquadExample], version: str = "1.1") -> "SquadDataset":
        """Return a data set of new questions; neighbours with one title or context share it."""
        examples = list(examples)
        articles = [
            {
                "title": title,
                "paragraphs": [
                    {"context": context, "qas": [_question(example, version) for example in about]}
                    for context, about in groupby(article, key=lambda example: example.context)
                ],
            }
            for title, article in groupby(examples, key=lambda example: example.title)
        ]
        return cls(examples, {"version": version, "data": articles})


class Squad(Corpus):
    """Questions, contexts and answers in a file of SQuAD's format, v1.1 or v2."""

    kind: Literal["squad"] = "squad"
    path: Path

    def read_examples(self, fields: Fields) -> Iterator[Example]:
        """Read the questions, each with all that is known of it."""
        check_fields(self.kind, _NAMES, fields)
        if "answers" in fields:
            self._check_answers()
        return ({name: getattr(found, name) for name in _NAMES} for found in self._questions())

    def files(self) -> list[Path]:
        """Return the file."""
        return [self.path]

    def _check_answers(self) -> None:
        """Raise a `DataError` for a question without a list of answers: whether it has one is not known."""
        check_read_twice(self.path)
        for article in read_squad(self.path).content["data"]:
            for question in (one for paragraph in article["paragraphs"] for one in paragraph["qas"]):
                if "answers" not in question and not question.get("is_impossible", False):
                    raise DataError(
                        f"{self.path}: question {question['id']} has no answers, an empty list if there is none"
                    )

    def _questions(self) -> Iterator[SquadExample]:
        yield from read_squad(self.path).examples


_NAMES = tuple(entry.name for entry in fields(SquadExample))


def read_squad(path: str | os.PathLike[str]) -> SquadDataset:
    """Read a file of SQuAD's format, plain or gzip; each answer is checked to be in its context."""
    path = Path(path)
    content = parsed_json(read_text(path), str(path))
    examples: list[SquadExample] = []
    seen: set[str] = set()
    for example in _examples(content, path):
        if example.id in seen:
            raise DataError(f"{path} has two questions with the id {example.id!r}")
        seen.add(example.id)
        for answer in example.answers:
            _check_is_in_context(answer, example, path)
        examples.append(example)
    return SquadDataset(examples, content)


def write_squad(path: str | os.PathLike[str], dataset: SquadDataset) -> None:
    """Write a data set with all that its file held."""
    _write_json(Path(path), dataset.content)


def read_predictions(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read the answers to questions by their ids, as SQuAD's evaluation takes them: `{"id": "text"}`."""
    path = Path(path)
    content = parsed_json(read_text(path), str(path))
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a JSON {type(content).__name__}; an object of ids and texts was expected")
    for name, text in content.items():
        try:
            checked_text(text)
        except FieldError as error:
            raise DataError(f"{path}: the prediction for {name!r} {error}") from None
    return content


def write_predictions(path: str | os.PathLike[str], predictions: Mapping[str, str]) -> None:
    """Write the answers to questions by their ids."""
    _write_json(Path(path), dict(predictions))


def _write_json(path: Path, content: object) -> None:
    with replaced_file(path) as fresh:
        # In ASCII, with escapes: half a character can be written no other way, and is kept, too.
        fresh.write_text(json.dumps(content) + "\n", encoding="ascii")


def _question(example: SquadExample, version: str) -> dict[str, Any]:
    def answers(found: list[Answer]) -> list[dict[str, Any]]:
        return [
            {"text": answer.text} if answer.start is None else {"text": answer.text, "answer_start": answer.start}
            for answer in found
        ]

    content: dict[str, Any] = {"id": example.id, "question": example.question, "answers": answers(example.answers)}
    if example.plausible_answers:
        content["plausible_answers"] = answers(example.plausible_answers)
    if example.is_impossible or not version.startswith(("1", "v1")):
        content["is_impossible"] = example.is_impossible
    return content


def _check_is_in_context(answer: Answer, example: SquadExample, path: Path) -> None:
    if answer.start is None or not example.context.startswith(answer.text, answer.start):
        raise DataError(
            f"{path}, question {example.id}: the answer {answer.text!r} is not in its context "
            f"at character {answer.start}, its answer_start"
        )


def _examples(content: object, path: Path) -> Iterator[SquadExample]:
    for article in _Part(content, path, "").parts("data"):
        title = article.text("title", "")
        for paragraph in article.parts("paragraphs"):
            context = paragraph.text("context")
            for question in paragraph.parts("qas"):
                yield SquadExample(
                    id=question.text("id"),
                    title=title,
                    context=context,
                    question=question.text("question"),
                    answers=question.answers("answers"),
                    is_impossible=question.flag("is_impossible"),
                    plausible_answers=question.answers("plausible_answers"),
                )


class _Part:
    """An object within a file; what is wrong with it is told by where it is."""

    def __init__(self, content: object, path: Path, place: str) -> None:
        self._path, self._place = path, place
        if not isinstance(content, dict):
            raise self._error("", f"is {type(content).__name__}, not an object")
        self._content = content

    def parts(self, name: str) -> Iterator["_Part"]:
        """Return the objects of a list."""
        content = self._value(name)
        if not isinstance(content, list):
            raise self._error(name, f"is {type(content).__name__}, not a list")
        return (_Part(part, self._path, self._at(f"{name}[{number}]")) for number, part in enumerate(content))

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text."""
        if default is not None and name not in self._content:
            return default
        try:
            return checked_text(self._value(name))
        except FieldError as error:
            raise self._error(name, str(error)) from None

    def flag(self, name: str) -> bool:
        """Return whether something is so; it is not unless the file has it."""
        value = self._content.get(name, False)
        if not isinstance(value, bool):
            raise self._error(name, f"is {type(value).__name__}, not true or false")
        return value

    def answers(self, name: str) -> list[Answer]:
        """Return a list of answers; the questions of a test may come without them."""
        if name not in self._content:
            return []
        try:
            return [answer_at(part.text("text"), part._value("answer_start")) for part in self.parts(name)]
        except FieldError as error:
            raise self._error(name, str(error)) from None

    def _value(self, name: str) -> object:
        if name not in self._content:
            raise self._error("", f"has no {name!r}")
        return self._content[name]

    def _at(self, name: str) -> str:
        return ".".join(filter(None, (self._place, name)))

    def _error(self, name: str, problem: str) -> DataError:
        return DataError(f"{self._path}: {self._at(name) or 'the file'} {problem}; SQuAD's format was expected")
