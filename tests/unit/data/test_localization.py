"""Numbers, times and days as languages write them."""

from datetime import date

import pytest

from regard.data.localization import day_and_month, localized_number, localized_time, separators


@pytest.mark.parametrize(
    ("text", "source", "target", "written"),
    [
        ("1.234", "de", "en", "1,234"),
        ("1234", "de", "en", "1234"),
        ("0,5", "de", "en", "0.5"),
        ("12.50", "de", "en", "12.50"),
        ("1,234,567.89", "en", "de", "1.234.567,89"),
        ("192.168.0.1", "en", "de", "192.168.0.1"),
        ("0.001", "de", "en", "0.001"),
    ],
)
def test_numbers(text: str, source: str, target: str, written: str) -> None:
    assert localized_number(text, source, target) == written


def test_times_of_the_12_hour_clock() -> None:
    assert localized_time("12:00 pm", "de") == "12:00"
    assert localized_time("12:00 am", "de") == "0:00"
    assert localized_time("13:00 pm", "de") == "13:00 pm"


def test_languages_without_data_have_no_separators() -> None:
    assert separators("xx") is None


def test_days() -> None:
    assert day_and_month(date(2027, 3, 1), "de") == "1. März"
