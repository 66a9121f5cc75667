"""Placeholders: what is to be copied is found, localized, and put back where its letter came."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.placeholders import LETTERS, marks, masked, masked_pair


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("Siehe https://example.org/a?b=c&d.", ["https://example.org/a?b=c&d"]),
        ("Mail bob.smith@example.org, please!", ["bob.smith@example.org"]),
        ("Go to www.example.com/x) now", ["www.example.com/x"]),
        ("See WWW.EXAMPLE.COM", ["WWW.EXAMPLE.COM"]),
        ("Visit example.org today", ["example.org"]),
        ("Open report.final.pdf in /usr/share/doc", ["report.final.pdf", "/usr/share/doc"]),
        ("'%s' has {0} of %1$d and %(name)s", ["%s", "{0}", "%1$d", "%(name)s"]),
        ("1234 Bücher, 12,50 Euro, am 24.12.2027", ["1234", "12,50", "24.12.2027"]),
        ("250g und 1.5kg", ["250", "1.5"]),
        ("Call 0172-1234567 at 15:30.", ["0172-1234567", "15:30"]),
    ],
)
def test_addresses_and_numbers_are_found(text: str, items: list[str]) -> None:
    found = masked(text)
    assert list(found.items.values()) == items
    assert found.filled(found.text) == text


@pytest.mark.parametrize(
    "text",
    ["z.B. usw.", "and/or", "in 24 Tagen", "the 1990s", "A320", "100%sure of 5 %", "Ende.Anfang", "It may 5 times"],
)
def test_words_and_small_numbers_stay(text: str) -> None:
    assert masked(text.replace("100%", "")).items == {}


@pytest.mark.parametrize(
    ("text", "source", "target", "written"),
    [
        ("1.234,50 Euro", "de", "en", "1,234.50 Euro"),
        ("$1,234.50", "en", "de", "1.234,50 $"),
        ("2027-12-24 und 24.12.2027", "de", "en", "2027-12-24 und 24.12.2027"),
        ("We use Python 3.11.", "en", "de", "We use Python 3.11."),
        ("version 2.5 weighs 2.25 kg", "en", "de", "version 2.5 weighs 2,25 kg"),
        ("at 3:30 p.m. today", "en", "de", "at 15:30 today"),
        ("at 12:05 a.m.", "en", "de", "at 0:05."),
        ("AT 3:30 P.M. TODAY", "en", "de", "AT 15:30 TODAY"),
        ("um 15:30 Uhr", "de", "en", "um 15:30 Uhr"),
        ("Seit dem 17. Mai 2019", "de", "en", "Seit dem May 17, 2019"),
        ("AM 3. MÄRZ 1999", "de", "en", "AM March 3, 1999"),
        ("on May 17th, 2019, and 3 June 2019", "en", "de", "on 17. Mai 2019, and 3. Juni 2019"),
        ("He came on 17th of May, 2019.", "en", "de", "He came on 17. Mai 2019."),
        ("on May 17, 2019", "en", "de-AT", "on 17. Mai 2019"),
        ("17 novembre 2019", "fr", "en", "November 17, 2019"),
        ("on may 17, 2019", "en", "de", "on 17. Mai 2019"),
        ("12.50", "xx", "yy", "12.50"),
        ("Heute kostet das Auto 1.500 Euro.", "de", "en", "Heute kostet das Auto 1,500 Euro."),
        ("Version 2.500 hat 2.500 Fehler.", "de", "en", "Version 2.500 hat 2,500 Fehler."),
        ("die Adresse 192.168.178.100.", "de", "en", "die Adresse 192.168.178.100."),
        ("1.234.567.890 Euro", "de", "en", "1,234,567,890 Euro"),
        ("1.000-2.000 Euro", "de", "en", "1,000-2,000 Euro"),
        ("1,000-2,000 dollars, 1.5:2.5", "en", "de", "1.000-2.000 dollars, 1,5:2,5"),
        ("from versions 1.2-1.3 on, 2019-05-17", "en", "de", "from versions 1.2-1.3 on, 2019-05-17"),
    ],
)
def test_numbers_and_times_are_localized(text: str, source: str, target: str, written: str) -> None:
    found = masked(text, source, target)
    assert found.filled(found.text) == written


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("In May 20 people came.", "en"),
        ("It was on May 5. 2019 was a good year.", "en"),
        ("In May 2019 and on May 17-19, 2019", "en"),
        ("On May 5, 1500 people came.", "en"),
        ("February 30, 2019", "en"),
        ("diesen Oktober 30, 2019", "de"),
        ("2. März 1999–2. März 2000", "de"),
        ("um 3:30 am Montag", "de"),
        ("17 M05 2019", "yo"),
    ],
)
def test_what_is_no_date_and_no_time_is_not_taken_for_one(text: str, language: str) -> None:
    found = masked(text, language, "de" if language == "en" else "en")
    assert not any(char.isalpha() for item in found.originals.values() for char in item)


def test_dates_have_the_last_letters_on_both_sides() -> None:
    pair = ("On May 3, 2019 we met 1200 people.", "Am 3. Mai 2019 trafen wir 1200 Leute.")
    assert masked_pair(pair, "en", "de") == ("On ת we met א people.", "Am ת trafen wir א Leute.")


def test_a_word_of_its_own_stays_one() -> None:
    found = masked("der 12.3.2027 war")
    assert found.filled("theאwas") == "the 12.3.2027 was"
    joined = masked("250g Mehl")
    assert joined.filled("אg of flour") == "250g of flour"


def test_an_item_that_comes_twice_is_one_letter() -> None:
    found = masked("1999 or 2000 or 1999")
    assert found.text == "א or ב or א"


def test_a_letter_of_the_text_stands_for_itself() -> None:
    found = masked("א is 1234")
    assert found.text == "א is ב"
    assert found.filled("ב א") == "1234 א"


def test_without_letters_left_numbers_stay() -> None:
    found = masked("1234 5678", letters=["א"])
    assert found.text == "א 5678"


@given(st.text(alphabet=st.sampled_from("ab1290.,:/@-%{}$s p.m. wé\n"), max_size=60))
def test_any_text_comes_back_as_it_was(text: str) -> None:
    found = masked(text)
    assert found.filled(found.text) == text
    assert set(found.items) <= set(LETTERS)


def test_both_sides_of_a_pair_have_the_same_letters() -> None:
    pair = ("In 1999 we paid $1,500.", "1.500 $ haben wir 1999 bezahlt.")
    assert masked_pair(pair, "en", "de") == ("In א we paid ב.", "ב haben wir א bezahlt.")


@pytest.mark.parametrize("pair", [("at 2:30", "um halb drei"), ("no number", "keine Zahl"), ("1999", "1999 und 2000")])
def test_a_pair_whose_sides_do_not_agree_is_not_masked(pair: tuple[str, str]) -> None:
    assert masked_pair(pair, "en", "de") is None


def test_an_abbreviation_is_no_file() -> None:
    assert masked("d.h. am Montag, Dr. h.c. Meier").items == {}
    assert list(masked("main.c und a.out.h").items.values()) == ["main.c", "a.out.h"]


def test_a_part_of_a_text_has_letters_of_its_own() -> None:
    text = "On May 3, 2019 we met 1200 people. On May 4, 2019 we met 1300."
    whole = masked(text, "en", "de", marks(text))
    assert whole.filled(whole.text) == "On 3. Mai 2019 we met 1200 people. On 4. Mai 2019 we met 1300."
    for sentence in whole.text.split(". "):
        part = whole.part(sentence, LETTERS)
        assert set(part.items) == {LETTERS[0], LETTERS[-1]}
        assert part.filled(part.text) == whole.filled(sentence)


def test_what_there_are_too_few_letters_for_stays_as_it_is() -> None:
    whole = masked("1.200 und 1.300", "de", "en", marks("1.200 und 1.300"))
    part = whole.part(whole.text, LETTERS[:1])
    assert part.text == f"{LETTERS[0]} und 1.300"
    assert part.filled(part.text) == "1,200 und 1.300"


def test_long_runs_of_letters_take_no_longer_than_they_are() -> None:
    began = time.perf_counter()
    assert masked("a" * 200_000 + " 123").items == {LETTERS[0]: "123"}
    assert time.perf_counter() - began < 5.0


@pytest.mark.parametrize(
    "item",
    [
        "./run.sh", "~/x.txt", "../notes/a.txt", "src/main.py", r"C:\Users\Max\a.txt", "DE89370400440532013000",
        "DE89 3704 0044 0532 0130 00", "100 000", "v1.2.3-rc1", "{{name}}", "SN4711X",
    ],
)  # fmt: skip
def test_paths_and_identifiers_are_one_item(item: str) -> None:
    found = masked(f"Das ist {item} hier.", "de", "en")
    assert list(found.items.values()) == [item]


def test_placeholders_that_were_apart_are_not_joined() -> None:
    found = masked("Treffen am 03.10.2024 um 15:30 Uhr.")
    first, second = found.items
    assert found.filled(f"meeting at {first}{second}.") == "meeting at 03.10.2024 15:30."


def test_a_path_without_digits_and_points_is_found() -> None:
    assert list(masked(r"Sieh in C:\Users\Max nach.", "de", "en").items.values()) == [r"C:\Users\Max"]


@pytest.mark.parametrize(
    ("text", "source", "target", "written"),
    [("It costs €5.", "en", "de", "It costs 5 €."), ("Das kostet 12,50 €.", "de", "en", "Das kostet €12.50.")],
)
def test_prices_are_localized_with_their_signs(text: str, source: str, target: str, written: str) -> None:
    found = masked(text, source, target)
    assert found.filled(found.text) == written
