"""Placeholders: text that must be copied unchanged is replaced by one character during translation.

Addresses, file names and numbers are rare words to a model, each time others. It is given a letter of a script that
its vocabulary has no piece for, which is spelled in bytes and required in the output, and the letter is then replaced.
Models that are trained so (`augment` of a corpus) say so in `generation.json`.
"""

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from regard.data.localization import (
    date_pattern,
    has_12_hour_clock,
    localized_date,
    localized_number,
    localized_time,
    separators,
)

LETTERS = tuple(map(chr, range(0x5D0, 0x5EB)))
"""The letters that stand for something: those of the Hebrew alphabet, two bytes each, in this order."""

_TOP = "com|org|net|edu|gov|de|eu|at|ch|uk|info|io|dev|app"
_FILE = (
    "pdf|txt|docx?|odt|ods|xlsx?|csv|tsv|pptx?|png|jpe?g|gif|svg|mp[34]|wav|ogg|avi|mkv|zip|gz|xz|tar|7z|exe|deb|rpm|iso"
    "|html?|css|js|json|xml|toml|ya?ml|ini|cfg|conf|log|md|tex|py|c|h|cpp|java|sh|so"
)
_UNIT = "kg|g|mg|km|m|cm|mm|l|ml|[kKMGT]B|[kMG]?Hz|k?W|k?V|mAh|h|min|px|pt"
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_ITEMS = rf"""
    (?P<address>
        (?:https?|ftp|file)://[^\s<>"„“”»«]+ | \b(?i:www\.)[^\s<>"„“”»«]+      # URLs
      | (?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+                       # e-mail addresses
      | (?<![\w.]){_OCTET}(?:\.{_OCTET}){{3}}(?![\w.]*\d)                # IP addresses
      | (?<![\w@./-])[\w-]+(?:\.[\w-]+)*\.(?:{_TOP})\b(?:/[^\s<>"„“”»«]*)?  # domains
      | (?<![\w./-])(?!\w\.[ch]\b)(?:[\w-]+/)*[\w-]+(?:\.[\w-]+)*\.(?:{_FILE})\b  # file names, but not "d.h."
      | (?<![\w./~-])(?:(?:~|\.{{1,2}})/[\w.+-]+|(?:/[\w.+-]+){{2}})(?:/[\w.+-]+)*/?  # paths
      | (?<!\w)[A-Za-z]:\\[^\s<>"|?*„“”»«]+                             # paths of Windows
      | (?<!\w)[A-Z]{{2}}\d\d(?:\ [A-Z0-9]{{4}}){{2,7}}(?:\ [A-Z0-9]{{1,4}})?(?!\w)  # IBANs
      | (?<!\w)[A-Z]{{1,5}}\d[A-Z0-9]{{3,}}(?!\w)                         # serial numbers
      | (?<![\w.,])\d{{1,3}}(?:[ \u00a0\u202f]\d{{3}})+(?![\w.,]*\d)      # thousands with spaces
      | (?<!\w)v\d+(?:\.\d+)+(?:[-+][\w.]+)?(?!\w)                       # versions
      | (?<![\w@.])@\w{{3,}}                                            # accounts
      | %(?:\d+\$)?[-+0]?\d*(?:\.\d+)?l{{0,2}}[sdiufxc](?!\w) | %\(\w+\)[sd](?!\w) | %\d(?!\w)
      | \{{\{{\w*\}}\}} | \{{\w*\}} | \$\{{\w+\}}
    )
    | (?P<date>DATE)
    | (?P<time>TIME)
    | (?P<price>(?<!\w)[$€£¥]\s?\d++(?:[.,]\d++)*+(?!\w) | (?<![\w.,])\d++(?:[.,]\d++)*+\s?[$€£¥](?!\w))
    | (?P<number>(?<![\w])\d++(?:[.,:/'’×-]\d++)*+(?:(?!\w)|(?=(?:{_UNIT})\b)))
"""
_HINT = re.compile(r"[\d@%{/\\]|\w\.\w")  # without one of these there is nothing to find
_LETTER = re.compile(f"[{LETTERS[0]}-{LETTERS[-1]}]")
_ENDS = ".,;:!?)]}'’\"…"
_TIME = r"""
    (?<![\w.,:])\d{1,2}:\d\d\s?
    (?:[ap](?:\.m\.(?=\s+[a-z]|,)|\.m\b|m\b) | [AP](?:\.M\.(?=\s+[A-Z]{2}|,)|\.M\b|M\b))
"""
_NEVER = r"(?!)"
_VERSION = r"\b(?:[Vv]ersion(?:s|en)?|[Rr]elease|[Ss]ection|[Cc]hapter|Kapitel|Abschnitt|v\.?)"
_PRICE = re.compile(r"(?P<sign>[$€£¥]?)\s?(?P<number>[\d.,]*\d)\s?(?P<after>[$€£¥]?)")
_OF_A_VERSION = re.compile(rf"{_VERSION}\s?$")
_OF_A_NAME = re.compile(rf"(?:{_VERSION}|(?<=[a-z,;] )[A-Z][a-z]+\w*)\s?$")
_RANGE = re.compile(r"([-/:×])")


@lru_cache(maxsize=64)
def _item(source: str | None, target: str | None) -> re.Pattern[str]:
    """Return what finds items in a text: which dates and times there are depends on the languages."""
    dates = None if source is None or target is None else date_pattern(source, target)
    times = _TIME if source is None or has_12_hour_clock(source) else None
    return re.compile(_ITEMS.replace("DATE", dates or _NEVER).replace("TIME", times or _NEVER), re.VERBOSE)


@dataclass(frozen=True)
class Masked:
    """A text with letters in place of what is to be copied."""

    text: str
    items: Mapping[str, str]
    """What each letter stands for, as it is written in the target."""
    originals: Mapping[str, str]
    """The same as it is written in the source."""
    dates: frozenset[str] = field(default=frozenset(), repr=False)
    """The letters that stand for dates."""

    def part(self, text: str, letters: Sequence[str]) -> "Masked":
        """Return a part of this text with other letters in place of its own; what there are too few for is not masked.

        >>> Masked("a 1 b 2", {"1": "x", "2": "y"}, {"1": "x", "2": "y"}).part("b 2", "א").text
        'b א'
        """
        if not self.items:
            return Masked(text, {}, {})
        free = [letter for letter in letters if letter not in text]
        items: dict[str, str] = {}
        originals: dict[str, str] = {}
        others: dict[str, str] = {}
        for char in dict.fromkeys(char for char in text if char in self.items):
            others[char] = free.pop(-1 if char in self.dates else 0) if free else self.originals[char]
            if others[char] in letters:
                items[others[char]], originals[others[char]] = self.items[char], self.originals[char]
        dates = frozenset(others[char] for char in others.keys() & self.dates)
        return Masked(_replaced(text, others), items, originals, dates)

    def filled(self, text: str) -> str:
        """Return a text with what its letters stand for.

        >>> masked("Siehe www.example.org!").filled("Look at theא!")
        'Look at the www.example.org!'

        A space is added where the letter was a word of its own in the source and is not in this text.
        """
        if not self.items:
            return text
        parts: list[str] = []
        for at, char in enumerate(text):
            if char not in self.items:
                parts.append(char)
                continue
            before, after = self._is_joined(char)
            if at and text[at - 1].isalnum() and not before:
                parts.append(" ")
            parts.append(self.items[char])
            if at + 1 < len(text) and text[at + 1].isalnum() and text[at + 1] not in self.items and not after:
                parts.append(" ")
        return "".join(parts)

    def _is_joined(self, letter: str) -> tuple[bool, bool]:
        """Whether a letter or digit comes right before a placeholder somewhere in the source, and right after one."""
        places = [at for at, char in enumerate(self.text) if char == letter]
        before = any(self.text[max(at - 1, 0) : at].isalnum() for at in places)
        return before, any(self.text[at + 1 : at + 2].isalnum() for at in places)


def masked(text: str, source: str | None = None, target: str | None = None, letters: Iterable[str] = LETTERS) -> Masked:
    """Replace addresses, file names, format fields, prices, and numbers of three digits or with a separator by letters.

    >>> masked("Das kostet 12,50 Euro.", "de", "en")
    Masked(text='Das kostet א Euro.', items={'א': '12.50'}, originals={'א': '12,50'})

    With the languages of both sides, numbers, dates and times of day are localized. The letters of dates are the last
    ones: a model can tell them from numbers. A number with a point after "version" or
    a name is that of a version, and stays as it is. A letter that is in the text stands for nothing else.
    """
    if not _HINT.search(text):
        return Masked(text, {}, {})
    present = set(text)
    free = deque(letter for letter in letters if letter not in present)
    known: dict[tuple[str, str], str] = {}
    items: dict[str, str] = {}
    originals: dict[str, str] = {}
    dates: set[str] = set()
    parts: list[str] = []
    done = 0
    for match in _item(source, target).finditer(text):
        item = match[0].rstrip(_ENDS) if match["address"] and match[0][0] not in "%{$" else match[0]
        if not item or (match["number"] and len(item) < 3):
            continue
        written = _localized(match, item, source, target)
        if written is None:
            continue
        letter = known.get((item, written))
        if letter is None:
            if not free:
                break
            letter = known[item, written] = free.pop() if match["date"] else free.popleft()
            items[letter], originals[letter] = written, item
            if match["date"]:
                dates.add(letter)
        parts += [text[done : match.start()], letter]
        done = match.start() + len(item)
    return Masked("".join(parts) + text[done:], items, originals, frozenset(dates))


def marks(text: str) -> list[str]:
    """Return characters for private use, as many as a text may have items: for a text that is cut into parts later."""
    return list(map(chr, range(0xF0000, min(0xF0001 + len(text) // 3, 0xFFFFE))))


def _localized(match: re.Match[str], item: str, source: str | None, target: str | None) -> str | None:
    """Return how the target writes an item; None for a date that does not exist."""
    if source is None or target is None or match["address"]:
        return item
    if match["date"]:
        return localized_date(item, source, target)
    if match["time"]:
        return localized_time(item, target)
    if match["price"]:
        return _localized_price(item, source, target)
    # In German, any noun has a capital; a number after it is no version.
    has_point = (separators(source) or ".")[0] == "."
    before = match.string[max(0, match.start() - 60) : match.start()]
    is_version = (_OF_A_NAME if has_point else _OF_A_VERSION).search(before) is not None
    return "".join(
        part if is_version and part.count(".") == 1 and "," not in part else localized_number(part, source, target)
        for part in _RANGE.split(item)
    )


def _localized_price(price: str, source: str, target: str) -> str:
    """Return a price as the target writes it: €5 in English, 5 € elsewhere."""
    found = _PRICE.fullmatch(price)
    assert found is not None
    number, sign = localized_number(found["number"], source, target), found["sign"] or found["after"]
    return f"{sign}{number}" if target.startswith("en") else f"{number} {sign}"


def masked_pair(pair: tuple[str, str], source: str, target: str) -> tuple[str, str] | None:
    """Return a pair with the same letters on both sides; None if it has nothing to mask, or the sides do not agree.

    >>> masked_pair(("It costs $1,500.", "Es kostet 1500 $."), "en", "de")
    ('It costs א.', 'Es kostet א.')
    """
    if not _HINT.search(pair[0]) or any(map(has_placeholder, pair)):
        return None
    found = masked(pair[0], source, target)
    if not found.items:
        return None
    other = masked(pair[1], target, target)
    letters = {_key(item): letter for letter, item in found.items.items()}
    if len(letters) < len(found.items) or {_key(item) for item in other.items.values()} != set(letters):
        return None
    return found.text, _replaced(other.text, {letter: letters[_key(item)] for letter, item in other.items.items()})


def has_placeholder(text: str) -> bool:
    """Whether a letter that may stand for something is in a text."""
    return _LETTER.search(text) is not None


def _key(item: str) -> str:
    """What two ways of writing one number have in common: its digits; an address is what it is."""
    return "".join(filter(str.isdigit, item)) if not any(map(str.isalpha, item)) else item


def _replaced(text: str, items: Mapping[str, str]) -> str:
    return "".join(items.get(char, char) for char in text)
