"""Data augmentation of translation pairs: with numbers, addresses, names, without capitals, in one language."""

import random
import re
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Annotated

from pydantic import Field

from regard.configs import Config
from regard.data.localization import day_and_month
from regard.data.noise import Pair
from regard.data.placeholders import LETTERS, has_placeholder, masked_pair
from regard.data.sentence_patterns import PATTERNS, PEOPLE, PLACES
from regard.errors import InputError

AUGMENTATION_VERSION = 3
"""Changes whenever the forms do: what was encoded from other ones is encoded anew."""

_SMALL = re.compile(r"(?<![\w.,:/$€-])([2-9]|[1-9]\d)(?![\w:/]|[.,]\d|\.\s)")
_NAME = re.compile(rf"\b({'|'.join((*PEOPLE, *PLACES))})(s?)\b")
_DATE = re.compile(r"\{date\},? \{x\}")  # of a pattern, with its year
_ENDS = ".!?"
_MASKED = 0.8  # of the pairs with numbers and addresses; a model should also do without placeholders
_FORMS = {"folded": 16, "small": 4, "name": 6, "pattern": 8, "inserted": 4, "identity": 3}


class Augmentation(Config):
    """What is added to the pairs of a corpus for a model that uses placeholders."""

    share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.3
    """To what share of the pairs another one is added."""
    source: str
    """The language of the sources, such as "de": it decides how numbers and dates are written."""
    target: str
    """The language of the targets."""

    def check(self) -> None:
        """Raise an `InputError` where fields do not fit together."""
        from babel.localedata import exists

        for language in (self.source, self.target):
            if not exists(language):
                raise InputError(f"language {language!r} is not one that Babel knows")


def augmented(pairs: Iterator[Pair], how: Augmentation) -> Iterator[Pair]:
    """Yield all pairs, with placeholders for addresses and numbers, and an augmented pair for a fraction of them.

    >>> how = Augmentation(source="en", target="de", share=0.0)
    >>> list(augmented(iter([("It's 1,500 yen.", "Es kostet 1.500 Yen.")]), how))
    [("It's א yen.", 'Es kostet א Yen.')]

    The forms: the source in lower case; another number of one or two digits on both sides; another name of a person or
    place; a sentence of a pattern, with prices, units, dates, times and addresses; a placeholder within the pair; the
    target as its own source. The same pairs give the same forms each time.
    """
    draw = random.Random(1)
    for pair in pairs:
        if any(map(has_placeholder, pair)):
            yield pair
            continue
        shown = masked_pair(pair, how.source, how.target) or pair
        yield shown if draw.random() < _MASKED else pair
        if draw.random() < how.share:
            yield _another(shown, how, draw)


def _another(pair: Pair, how: Augmentation, draw: random.Random) -> Pair:
    possible = dict(_FORMS)
    small, named = _with_small_number(pair, draw), _with_name(pair, draw)
    if small is None:
        del possible["small"]
    if named is None:
        del possible["name"]
    if (how.source, how.target) not in PATTERNS and (how.target, how.source) not in PATTERNS:
        del possible["pattern"]
    form = draw.choices(list(possible), list(possible.values()))[0]
    if form == "small" and small is not None:
        return small
    if form == "name" and named is not None:
        return named if draw.random() < 0.7 else _folded(named, draw)
    if form == "pattern":
        made = _of_pattern(how, draw)
        return made if draw.random() < 0.7 else _folded(made, draw)
    if form == "inserted":
        return _inserted(pair, draw)
    if form == "identity":
        return pair[1], pair[1]
    return _folded(pair, draw)


def _folded(pair: Pair, draw: random.Random) -> Pair:
    """The source in lower case: as typed without capitals, or as what is left of a text in capitals."""
    source, target = pair
    kind = draw.randrange(3)
    if kind == 0:
        return source.lower(), target
    lower = source.upper().lower()  # "STRASSE" has lost its "ß"
    if kind == 1:
        return lower[:1].upper() + lower[1:], target
    if len(source) > 1 and len(target) > 1 and source[-1] in _ENDS and target[-1] in _ENDS:
        return source[:-1].rstrip(_ENDS).lower(), target[:-1].rstrip(_ENDS)
    return lower, target


def _with_small_number(pair: Pair, draw: random.Random) -> Pair | None:
    """Another number in place of each of one or two digits, if both sides have the same ones."""
    found = _SMALL.findall(pair[0])
    if not found or sorted(found) != sorted(_SMALL.findall(pair[1])):
        return None
    others = {number: str(draw.randrange(2, 100)) for number in found}
    return _SMALL.sub(lambda match: others[match[1]], pair[0]), _SMALL.sub(lambda match: others[match[1]], pair[1])


def _with_name(pair: Pair, draw: random.Random) -> Pair | None:
    """Another name in place of each, if both sides have the same ones."""
    found = sorted({match[1] for match in _NAME.finditer(pair[0])})
    if not found or found != sorted({match[1] for match in _NAME.finditer(pair[1])}):
        return None
    others = {name: _new_name(draw) if name not in PLACES else draw.choice(PLACES) for name in found}
    first, second = (_NAME.sub(lambda match: others[match[1]] + match[2], side) for side in pair)
    return first, second


def _new_name(draw: random.Random) -> str:
    """A listed name, or an invented one."""
    if draw.random() < 0.6:
        return draw.choice(PEOPLE)
    parts = (
        draw.choice("BDFGHJKLMNPRSTVW") + draw.choice("aeiou"),
        *(
            draw.choice(("l", "n", "r", "m", "s", "t", "nd", "rt", "ck", "k", "v"))
            + draw.choice(("a", "e", "i", "o", "en", "er"))
            for _ in range(draw.randint(1, 2))
        ),
    )
    return "".join(parts)


def _of_pattern(how: Augmentation, draw: random.Random) -> Pair:
    """A sentence of a pattern, in both languages."""
    forward = (how.source, how.target) in PATTERNS
    languages = (how.source, how.target) if forward else (how.target, how.source)
    first, second = draw.choice(PATTERNS[languages])
    if draw.random() < _MASKED:
        first, second = (_DATE.sub(LETTERS[-1], text) for text in (first, second))
    letters = list(LETTERS[:2])
    day = date(2000, 1, 1) + timedelta(days=draw.randrange(366))  # the year is a placeholder
    values = {"x": letters[0], "y": letters[1], "s": str(draw.randrange(2, 100)), "name": _new_name(draw)}
    values["place"] = draw.choice(PLACES)
    dates = [{"date": day_and_month(day, language)} for language in languages]
    made = [text.format(**values, **dates[side]) for side, text in enumerate((first, second))]
    return (made[0], made[1]) if forward else (made[1], made[0])


def _inserted(pair: Pair, draw: random.Random) -> Pair:
    """A placeholder at the end of both sides, or before it."""
    letter = next(letter for letter in LETTERS if letter not in pair[0])
    if all(len(side) > 1 and side[-1] in _ENDS for side in pair):
        form = draw.choice((" ({}){}", ": {}{}", " – {}{}", " {}{}"))
        first, second = (side[:-1] + form.format(letter, side[-1]) for side in pair)
        return first, second
    return f"{pair[0]} {letter}", f"{pair[1]} {letter}"
