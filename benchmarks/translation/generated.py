"""Sentences with numbers, prices, dates, times and addresses, and whether these came through a translation.

None of the patterns is one of those that the model is trained with (`regard.data.sentence_patterns`).
"""

import random
import re
from dataclasses import dataclass
from datetime import date

from regard.data.localization import day_and_month, separators

KINDS = ("integers", "decimals", "prices", "dates", "times", "URLs", "e-mail addresses")
STYLES = ("as usual", "all caps", "no caps")

_PATTERNS = {
    "integers": """
        In diesem Stadion haben {} Zuschauer Platz.|This stadium can hold {} spectators.
        Wir haben {} Briefe bekommen.|We received {} letters.
        Der Computer hat {} Fehler gefunden.|The computer found {} errors.
        Gestern wurden {} Autos verkauft.|{} cars were sold yesterday.
        Er kann bis {} zählen.|He can count to {}.
        Auf der Insel wohnen {} Menschen.|{} people live on the island.
        Sie hat schon {} Seiten gelesen.|She has already read {} pages.
        Meine Großmutter hat {} Bücher.|My grandmother has {} books.""",
    "decimals": """
        Der Fisch war {} Kilo schwer.|The fish weighed {} kilos.
        Der Weg ist {} Kilometer lang.|The path is {} kilometers long.
        Heute ist es um {} Grad wärmer als gestern.|Today it is {} degrees warmer than yesterday.
        Etwa {} Prozent der Kinder waren krank.|About {} percent of the children were sick.
        Ich habe {} Liter Milch gekauft.|I bought {} liters of milk.
        Das Zimmer ist {} Meter breit.|The room is {} meters wide.""",
    "prices": """
        Das Hemd hat {} gekostet.|The shirt cost {}.
        Für {} kannst du das Fahrrad haben.|You can have the bike for {}.
        Ein Kaffee kostet hier {}.|A coffee costs {} here.
        Meine Mutter hat mir {} gegeben.|My mother gave me {}.
        Tom hat gestern {} verloren.|Tom lost {} yesterday.
        Warum hast du {} für diese Schuhe bezahlt?|Why did you pay {} for these shoes?""",
    "dates": """
        Am {} haben wir uns zum ersten Mal gesehen.|We saw each other for the first time on {}.
        Die Schule fängt am {} wieder an.|School starts again on {}.
        Der Krieg endete am {}.|The war ended on {}.
        Unser Flug geht am {}.|Our flight is on {}.
        Seit dem {} habe ich ihn nicht mehr gesehen.|I haven't seen him since {}.""",
    "times": """
        Der Film fängt um {} an.|The movie starts at {}.
        Wir essen um {} zu Abend.|We have dinner at {}.
        Kannst du um {} hier sein?|Can you be here at {}?
        Um {} hat das Telefon geklingelt.|The phone rang at {}.
        Er ist erst um {} nach Hause gekommen.|He didn't come home until {}.""",
    "URLs": """
        Die Bilder sind auf {} zu sehen.|The pictures can be seen on {}.
        Hast du den Artikel auf {} gelesen?|Did you read the article on {}?
        Geh auf {} und such nach dem Buch.|Go to {} and look for the book.
        Mein Bruder arbeitet für {}.|My brother works for {}.
        Auf {} steht, dass es morgen regnet.|It says on {} that it will rain tomorrow.""",
    "e-mail addresses": """
        Schicken Sie den Brief bitte an {}, nicht an mich.|Please send the letter to {}, not to me.
        Ich habe von {} keine Antwort bekommen.|I got no answer from {}.
        Ist {} noch deine Adresse?|Is {} still your address?
        Warum fragst du nicht {}?|Why don't you ask {}?
        Tom schreibt jeden Tag an {}.|Tom writes to {} every day.""",
}


@dataclass(frozen=True)
class Sentence:
    """A sentence to translate, and what must come of the numbers and addresses in it."""

    text: str
    kind: str
    style: str
    items: tuple[tuple[str, ...], ...]
    """Of each number or address, the ways to write it that count as right."""

    def kept(self, translation: str) -> int:
        """Return how many of the items are in a translation."""
        return sum(any(_is_in(form, translation) for form in forms) for forms in self.items)


def _is_in(form: str, text: str) -> bool:
    return re.search(rf"(?<![\w@/])(?<!\d[.,]){re.escape(form)}(?!\w|[.,:/-]?\d|@)", text) is not None


def generated(language: str, count: int, seed: int = 7) -> list[Sentence]:
    """Return sentences in a language, to be translated into the other of German and English; each kind as often."""
    draw = random.Random(f"{seed} {language}")
    return [_sentence(language, KINDS[number % len(KINDS)], draw) for number in range(count)]


def _sentence(language: str, kind: str, draw: random.Random) -> Sentence:
    target = "en" if language == "de" else "de"
    german, english = draw.choice([line.strip().split("|") for line in _PATTERNS[kind].strip().split("\n")])
    value, items = _VALUES[kind](language, target, draw)
    style = draw.choice((STYLES[0], STYLES[0], STYLES[1], STYLES[2]))
    carrier = german if language == "de" else english
    if style != STYLES[0]:
        change = str.upper if style == STYLES[1] else str.lower
        carrier = change(carrier)
        value = value if kind in ("URLs", "e-mail addresses") else change(value)
    return Sentence(carrier.format(value), kind, style, items)


Value = tuple[str, tuple[tuple[str, ...], ...]]


def _grouped(number: int, language: str) -> str:
    return f"{number:,}".replace(",", (separators(language) or ".,")[1])


def _integer(language: str, target: str, draw: random.Random) -> Value:
    number = draw.randrange(10, 10 ** draw.randint(2, 7))
    written = str(number) if draw.random() < 0.5 else _grouped(number, language)
    return written, ((str(number), _grouped(number, target)),)


def _decimals(number: str, language: str) -> str:
    whole, fraction = number.split(".")
    return _grouped(int(whole), language) + (separators(language) or ".,")[0] + fraction


def _decimal(language: str, target: str, draw: random.Random) -> Value:
    number = f"{draw.randrange(1, 10 ** draw.randint(1, 3))}.{draw.randrange(1, 100)}"
    return _decimals(number, language), ((_decimals(number, target),),)


def _price(language: str, target: str, draw: random.Random) -> Value:
    number = f"{draw.randrange(1, 10 ** draw.randint(1, 4))}.{draw.randrange(5, 100, 5):02}"
    amount = _decimals(number, language)
    forms = ("{} Euro", "{} €", "{} Dollar") if language == "de" else ("{} euros", "€{}", "${}")
    return draw.choice(forms).format(amount), ((_decimals(number, target),),)


def _day(language: str, target: str, draw: random.Random) -> Value:
    day = date.fromordinal(draw.randrange(date(1900, 1, 1).toordinal(), date(2060, 1, 1).toordinal()))
    if draw.random() < 0.4:
        written = f"{day:%d.%m.%Y}" if language == "de" else f"{day:%m/%d/%Y}"
        other = f"{day:%m/%d/%Y}" if target == "en" else f"{day:%d.%m.%Y}"
        return written, ((written, other, f"{day.day}.{day.month}.{day.year}", f"{day.month}/{day.day}/{day.year}"),)
    comma = ", " if language == "en" else " "
    month = day_and_month(day, target).strip("0123456789. ")
    days = (str(day.day), *(f"{day.day}{end}" for end in ("st", "nd", "rd", "th")))
    return f"{day_and_month(day, language)}{comma}{day.year}", (days, (month,), (str(day.year),))


def _time(language: str, target: str, draw: random.Random) -> Value:
    hour, minute = draw.randrange(24), draw.randrange(1, 60)
    half = f"{hour % 12 or 12}:{minute:02}"
    forms = (
        f"{hour}:{minute:02}",
        f"{hour:02}:{minute:02}",
        *(f"{half}{end}" for end in (" p.m", " a.m", " PM", " AM")),
    )
    if language == "de":
        return f"{hour}:{minute:02} Uhr", (forms,)
    return f"{half} {'p.m.' if hour >= 12 else 'a.m.'}", (forms[:2],)


_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _word(draw: random.Random) -> str:
    return "".join(draw.choices(_LETTERS, k=draw.randint(3, 9)))


def _url(language: str, target: str, draw: random.Random) -> Value:
    domain = f"{_word(draw)}.{draw.choice(('com', 'de', 'org', 'net', 'info', 'co.uk', 'io'))}"
    path = "".join(f"/{_word(draw)}" for _ in range(draw.randrange(3)))
    end = draw.choice(("", "", f"?id={draw.randrange(10_000)}", ".html", f"#{_word(draw)}")) if path else ""
    url = draw.choice(("https://", "http://www.", "https://www.", "www.")) + domain + path + end
    return url, ((url,),)


def _email(language: str, target: str, draw: random.Random) -> Value:
    name = draw.choice((_word(draw), f"{_word(draw)}.{_word(draw)}", f"{_word(draw)}_{draw.randrange(100)}"))
    address = f"{name}@{_word(draw)}.{draw.choice(('com', 'de', 'org', 'edu'))}"
    return address, ((address,),)


_VALUES = {
    "integers": _integer,
    "decimals": _decimal,
    "prices": _price,
    "dates": _day,
    "times": _time,
    "URLs": _url,
    "e-mail addresses": _email,
}
