from datetime import date

import pytest

from regard import ConfigError
from regard.data import Dates


def test_dates_are_written_in_their_languages() -> None:
    pairs = list(Dates(count=3000).pairs())
    assert len(pairs) == 3000
    texts = " ".join(source for source, _ in pairs)
    for name in ("Montag", "mercredi", "agosto", "сентября", "年", "Ağustos", "March", "października"):
        assert name in texts
    assert all(date.fromisoformat(target) for _, target in pairs)
    assert all(target[:4] in source for source, target in pairs)


def test_no_day_is_in_two_parts() -> None:
    days = {part: {target for _, target in Dates(part=part, count=2000).pairs()} for part in ("train", "valid", "test")}
    assert not days["train"] & days["valid"]
    assert not days["train"] & days["test"]
    assert not days["valid"] & days["test"]


def test_the_same_seed_gives_the_same_pairs() -> None:
    assert list(Dates(count=20).pairs()) == list(Dates(count=20).pairs())
    assert list(Dates(count=20).pairs()) != list(Dates(count=20, seed=1).pairs())


def test_bad_fields_are_told() -> None:
    with pytest.raises(ConfigError, match="'klingon'"):
        Dates(locales=("klingon",))
    with pytest.raises(ConfigError, match="from 2000 to 1999"):
        Dates(first_year=2000, last_year=1999)
