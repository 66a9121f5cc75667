"""The test set that a model directory may hold, so that its scores can be checked without another file.

`test.tsv` has a pair on each line, separated by a tab. `test.json` names the languages of its columns, in the words
of the model's tags: `{"columns": ["en", "de"]}`. It is needed by models that translate into several languages;
without it, the first column is the source and the second the target.
"""

from dataclasses import dataclass
from pathlib import Path

from regard.data.corpora import TabSeparated
from regard.data.noise import Pair
from regard.errors import InputError, ModelError
from regard.files import read_json

PAIRS, COLUMNS = "test.tsv", "test.json"


@dataclass(frozen=True)
class Direction:
    """One way to use a test set: from one of its columns to the other."""

    source: str | None
    """The source language, where it is known."""
    target: str | None
    """The tag of the target language, for a model that has tags."""
    pairs: list[Pair]

    def __str__(self) -> str:
        if self.target is None:
            return ""
        return f"into {self.target}" if self.source is None else f"{self.source} → {self.target}"


def has_test_set(directory: Path) -> bool:
    """Whether a model directory holds a test set."""
    return (directory / PAIRS).exists()


def read_test_set(directory: Path, languages: list[str], to: str | None = None) -> list[Direction]:
    """Read the test set of a model that writes these languages, once for each direction, or into one of them."""
    path = directory / PAIRS
    if not path.exists():
        raise ModelError(f"{path} is missing; a model without a test set is evaluated on files")
    columns = _columns(directory / COLUMNS)
    if not languages:
        return [Direction(columns and columns[0], None, _pairs(path, 1))]
    if columns is None:
        if len(languages) > 1:
            raise ModelError(f"{directory / COLUMNS} is missing; it says which column of {PAIRS} is in which language")
        return [Direction(None, languages[0], _pairs(path, 1))]
    found = {
        columns[target - 1]: Direction(columns[2 - target], columns[target - 1], _pairs(path, 3 - target))
        for target in (1, 2)
        if columns[target - 1] in languages
    }
    if to is None and found:
        return list(found.values())
    if to not in found:
        raise InputError(f"{path} is in {' and '.join(columns)}; it cannot test translation into {to or languages}")
    return [found[to]]


def _pairs(path: Path, source: int) -> list[Pair]:
    return list(TabSeparated(path=path, source_column=source, target_column=3 - source).pairs())


def _columns(path: Path) -> tuple[str, str] | None:
    if not path.exists():
        return None
    match read_json(path):
        case {"columns": [str() as one, str() as other]} if one != other:
            return one, other
    raise ModelError(f'{path} does not name two languages: {{"columns": ["en", "de"]}} was expected')
