"""bAbI's stories (Weston et al. 2015): statements, and questions about the statements before them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regard.data.corpora import Corpus, Example, Fields, check_fields
from regard.data.examples import Answer
from regard.data.exchanged_words import BABI, EXCHANGE_VERSION, with_copies
from regard.data.reading import matching_files, read_lines
from regard.errors import DataError

_FIELDS = ("context", "question", "answers", "task", "task_name")


class Babi(Corpus):
    """Questions about bAbI's stories. The context of a question is the statements of its story that are before it."""

    kind: Literal["babi"] = "babi"
    path: Path
    """The file of a task, or a pattern for several, such as `babi/*_train.txt`."""
    copies: Annotated[int, Field(ge=0, le=1000)] = 0
    """How many copies of each question are added, with names, places and things exchanged in its whole story."""

    def read_examples(self, fields: Fields) -> Iterator[Example]:
        """Read the questions, each with the number and the name of its task."""
        check_fields(self.kind, _FIELDS, fields)
        if self.path.is_dir():
            raise DataError(f"{self.path} is a directory; its files are named by a pattern: {self.path}/*_train.txt")
        return (example for file in self.files() for example in self._questions(file))

    def _questions(self, file: Path) -> Iterator[Example]:
        alike = BABI.get(_task(file)[0] or 0, ()) if self.copies else ()
        return with_copies(read_babi(file), alike, self.copies)

    def cache_key(self) -> str:
        """Return what decides about the questions beside the files: the words that are exchanged, by task."""
        if not self.copies:
            return super().cache_key()
        tasks = " ".join(str(_task(file)[0]) for file in self.files())
        return f"{super().cache_key()} exchanged words {EXCHANGE_VERSION} of tasks {tasks}"

    def files(self) -> list[Path]:
        """Return the files, in the order of the tasks' numbers."""
        return matching_files(self.path)


def read_babi(path: Path) -> Iterator[Example]:
    """Read the questions of a file, in order.

    Each has `context`, `question` and `answers`, of which there is one: several words of an answer are separated by
    commas, as in the file. `task` is the number of the task and `task_name` its name, by the name of the file, such
    as `qa8_lists-sets_test.txt`; the number of a file of another name is None.
    """
    number, name = _task(path)
    statements: list[str] = []
    for line_number, line in enumerate(read_lines(path), 1):
        found = re.fullmatch(r"(\d+) ([^\t]+)(?:\t([^\t]*)(?:\t.*)?)?", line)
        if found is None:
            raise DataError(
                f"{path}, line {line_number} is not of bAbI's form: a number, a space and a statement, "
                "or a question with its answer behind a tab"
            )
        place, text, answer = found.groups()
        if place == "1":
            statements = []
        if answer is None:
            statements.append(text.strip())
            continue
        if not statements or not answer.strip():
            lacking = "an answer" if statements else "a statement before it"
            raise DataError(f"{path}, line {line_number}: the question {text.strip()!r} is without {lacking}")
        yield {
            "context": " ".join(statements),
            "question": text.strip(),
            "answers": [Answer(answer.strip())],
            "task": number,
            "task_name": name,
        }


def _task(path: Path) -> tuple[int | None, str]:
    found = re.match(r"qa(\d+)_(.+?)(?:_(?:train|valid|test))?\.", path.name)
    return (int(found[1]), found[2]) if found else (None, path.name.partition(".")[0])
