"""A corpus that needs no download: dates as a dozen languages write them, and as ISO 8601 does."""

from collections.abc import Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from regard.data.corpora import Corpus
from regard.data.noise import Pair
from regard.errors import InputError

_PARTS = ("train", "valid", "test")
_FORMATS = ("full", "long")  # months by name: 03/04/27 would be another day in another country


class Dates(Corpus):
    """Pairs such as "mercredi 3 mars 2027" and "2027-03-03", made from the CLDR data in Babel.

    The days of all years fall into three parts for good, so that what is trained on is never tested on.
    """

    kind: Literal["dates"] = "dates"
    part: Literal["train", "valid", "test"] = "train"
    """Eight days in ten are for training, one for validation, one for testing."""
    count: Annotated[int, Field(ge=1)] = 20_000
    """How many pairs there are."""
    seed: Annotated[int, Field(ge=0)] = 0
    locales: tuple[str, ...] = ("de", "en", "es", "fr", "it", "ja", "nl", "pl", "pt", "ru", "sv", "tr")
    """The languages, by their CLDR names."""
    first_year: Annotated[int, Field(ge=1)] = 1900
    last_year: Annotated[int, Field(le=9999)] = 2099

    def check(self) -> None:
        """Raise an `InputError` where fields do not fit together."""
        if self.first_year > self.last_year or not self.locales:
            raise InputError(f"there are no dates from {self.first_year} to {self.last_year} in {self.locales}")
        from babel.localedata import exists

        for name in self.locales:
            if not exists(name):
                raise InputError(f"locale {name!r} is not one that Babel knows")

    def read(self) -> Iterator[Pair]:
        """Write each drawn day in a drawn language and format."""
        from babel.dates import format_date

        random = np.random.default_rng(np.random.SeedSequence(entropy=self.seed, spawn_key=(_PARTS.index(self.part),)))
        first, last = date(self.first_year, 1, 1).toordinal(), date(self.last_year, 12, 31).toordinal()
        for _ in range(self.count):
            day = date.fromordinal(self._draw(random, first, last))
            locale = self.locales[int(random.integers(len(self.locales)))]
            style = _FORMATS[int(random.integers(len(_FORMATS)))]
            yield format_date(day, style, locale=locale), day.isoformat()

    def files(self) -> list[Path]:
        """Name no file: the pairs are made."""
        return []

    def made_by(self) -> str:
        """Name what they are made by, which decides how a month is spelled."""
        return f"Babel {version('babel')}"

    def _draw(self, random: np.random.Generator, first: int, last: int) -> int:
        while True:
            day = int(random.integers(first, last + 1))
            if _part_of(day) == self.part:
                return day


def _part_of(day: int) -> str:
    """Put a day into its part, by a number that mixes neighbouring days well."""
    tenth = day * 2654435761 % 2**32 * 10 >> 32
    return "test" if tenth == 0 else "valid" if tenth == 1 else "train"
