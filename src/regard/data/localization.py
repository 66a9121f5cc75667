"""Numbers, dates and times of day as a language writes them, by the CLDR data in Babel."""

import re
from datetime import date
from functools import lru_cache

from babel import Locale, UnknownLocaleError
from babel.dates import format_date, format_skeleton

_CLOCK_12 = re.compile(r"(\d{1,2}):(\d\d)\s?([ap])\.?m\.?", re.IGNORECASE)


@lru_cache(maxsize=64)
def _locale(language: str) -> Locale | None:
    """Return the locale of a language, or None if there is no data for it."""
    try:
        return Locale.parse(language.replace("-", "_"))
    except (ValueError, UnknownLocaleError):
        return None


@lru_cache(maxsize=64)
def separators(language: str) -> tuple[str, str] | None:
    """Return what a language writes before decimals and between thousands; None if that is not known.

    >>> separators("de")
    (',', '.')
    """
    locale = _locale(language)
    if locale is None:
        return None
    symbols = locale.number_symbols.get("latn") or locale.number_symbols
    return str(symbols["decimal"]), str(symbols["group"])


@lru_cache(maxsize=64)
def _number(decimal: str, group: str) -> re.Pattern[str]:
    d, g = re.escape(decimal), re.escape(group)
    return re.compile(rf"(?P<whole>[1-9]\d{{0,2}}(?:{g}\d{{3}})+|\d+)(?:{d}(?P<fraction>\d+))?")


def localized_number(text: str, source: str, target: str) -> str:
    """Return a number of one language as another writes it; what is no number of the first stays as it is.

    >>> localized_number("1.234,50", "de", "en"), localized_number("24.12.2027", "de", "en")
    ('1,234.50', '24.12.2027')
    """
    before, after = separators(source), separators(target)
    if before is None or after is None:
        return text
    match = _number(*before).fullmatch(text)
    if match is None:
        return text
    whole = match["whole"].replace(before[1], after[1])
    return whole if match["fraction"] is None else f"{whole}{after[0]}{match['fraction']}"


def localized_time(text: str, target: str) -> str:
    """Return a time of the 12-hour clock as a language of the 24-hour clock writes it; others stay as they are.

    >>> localized_time("3:30 p.m.", "de"), localized_time("3:30 p.m.", "en")
    ('15:30', '3:30 p.m.')
    """
    match, locale = _CLOCK_12.fullmatch(text), _locale(target)
    if match is None or locale is None or not 1 <= int(match[1]) <= 12:
        return text
    if "H" not in str(locale.time_formats["short"].pattern):
        return text
    hour = int(match[1]) % 12 + (12 if match[3].lower() == "p" else 0)
    return f"{hour}:{match[2]}"


@lru_cache(maxsize=1024)
def day_and_month(day: date, language: str) -> str:
    """Return a day without its year, the month by its name.

    >>> day_and_month(date(2027, 12, 24), "de"), day_and_month(date(2027, 12, 24), "en")
    ('24. Dezember', 'December 24')
    """
    return format_skeleton("MMMMd", day, locale=_locale(language))


def has_12_hour_clock(language: str) -> bool:
    """Whether a language writes times of day with "a.m." and "p.m.": in German, "3:30 am" is the start of a date."""
    locale = _locale(language)
    return locale is not None and "H" not in str(locale.time_formats["short"].pattern)


@lru_cache(maxsize=64)
def _months(language: str) -> dict[str, int]:
    """Return the numbers of the months by their names in lower case; none for a language without names."""
    locale = _locale(language)
    names = {} if locale is None else {str(name): number for number, name in locale.months["format"]["wide"].items()}
    return {} if any(re.fullmatch(r"M?\d+", name) for name in names) else {n.lower(): m for n, m in names.items()}


@lru_cache(maxsize=64)
def date_pattern(source: str, target: str) -> str | None:
    """Return a regular expression for dates of a language that another can write, such as "17. Mai 2019".

    They have the name of a month and a year. Without a year, "in May 20 people came" would have a date in it.
    """
    if not _months(source) or not _months(target):
        return None
    month, year = "|".join(map(re.escape, _months(source))), r"(?:1[6-9]|20)\d\d"
    forms = [rf"\d{{1,2}}(?:st|nd|rd|th|\.)?(?:\ of)?\ (?:{month}),?\ {year}"]
    if not day_and_month(date(2000, 1, 1), source)[0].isdigit():
        forms.append(rf"(?:{month})\ \d{{1,2}}(?:st|nd|rd|th)?,?\ {year}")
    return rf"(?<![\w.,:/–-])(?i:{'|'.join(forms)})(?![\w–-]|[.,:/]\d)"


def localized_date(text: str, source: str, target: str) -> str | None:
    """Return a date with the name of a month and a year as another language writes it; None if there is no such day.

    >>> localized_date("17. Mai 2019", "de", "en"), localized_date("May 17th, 2019", "en", "de")
    ('May 17, 2019', '17. Mai 2019')
    >>> localized_date("30. Februar 2019", "de", "en")
    """
    month = next((number for name, number in _months(source).items() if name in text.lower()), None)
    numbers = [int(found) for found in re.findall(r"\d+", text)]
    if month is None or len(numbers) != 2 or _locale(target) is None:
        return None
    try:
        return str(format_date(date(numbers[1], month, numbers[0]), "long", locale=_locale(target)))
    except ValueError:
        return None
