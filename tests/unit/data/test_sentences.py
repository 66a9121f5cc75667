import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.sentences import (
    Piece,
    around_opaque,
    composed,
    fitting_pieces,
    is_opaque,
    split_opaque,
    split_sentences,
    with_plain_spaces,
)


def joined(pieces: list[Piece]) -> str:
    return "".join(text + space for text, space in pieces)


@given(st.text() | st.text(alphabet="aB. !?\n,。“"))
def test_nothing_is_lost(text: str) -> None:
    assert joined(split_sentences(text)) == text
    for limit in (1, 3, 10):
        pieces = fitting_pieces(text, lambda piece, limit=limit: len(piece) <= limit)  # type: ignore[misc]
        assert joined(pieces) == text
        assert all(len(piece) <= limit for piece, _ in pieces)
    for sentence, _ in split_sentences(text):
        assert sentence == sentence.strip()


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Hello. How are you?", ["Hello.", "How are you?"]),
        ('"Stop!" he said. "Now."', ['"Stop!" he said.', '"Now."']),
        ("Am 3. März kam Dr. Müller. Er ging.", ["Am 3. März kam Dr. Müller.", "Er ging."]),
        ("Es gibt z. B. Brot.", ["Es gibt z. B. Brot."]),
        ("今日は。元気？", ["今日は。", "元気？"]),
        ("It costs 3.50 or www.x.de here", ["It costs 3.50 or www.x.de here"]),
        ("One\nTwo", ["One", "Two"]),
        ("wait... what?", ["wait... what?"]),
    ],
)
def test_sentences_end_where_people_end_them(text: str, sentences: list[str]) -> None:
    assert [sentence for sentence, _ in split_sentences(text)] == sentences


def test_accents_that_stand_by_themselves_belong_to_their_letters() -> None:
    assert composed("mu\u0308de, e\u0301te\u0301, \u212b \u0301 🙂") == "müde, été, \u212b \u0301 🙂"
    assert with_plain_spaces("der Kaﬀee ist ﬂu\u0308ssig") == "der Kaffee ist flüssig"


@pytest.mark.parametrize(
    ("run", "is_text"),
    [("x" * 120, True), ("x" * 121, False), ("ab," * 300, True), ("ab," * 400, False), ("日本。" * 500, True)],
)
def test_runs_without_a_space_that_are_no_text_are_split_off(run: str, is_text: bool) -> None:
    assert is_opaque(run) != is_text
    assert (run in [piece for piece, _ in split_opaque(f"<b>{run} and so on.</b>")]) != is_text


def test_time_grows_with_the_text_and_not_with_its_square() -> None:
    for text in ("." * 200_000, "a. " * 100_000, "?!" * 100_000 + "x", "z. B. " * 50_000):
        assert joined(split_sentences(text)) == text


def test_a_change_is_made_around_markup_and_long_runs() -> None:
    run = "Ab" * 600
    assert around_opaque(f'<G id="Haus">Hallo</G> {run} Welt', str.lower) == f'<G id="Haus">hallo</G> {run} welt'
    assert around_opaque("Ohne", str.lower) == "ohne"


def test_markup_within_a_sentence_and_signs_of_code_are_split_off() -> None:
    alphabet = set("abcdefghijklmnopqrstuvwxyzC<>=|/ .")
    assert [piece for piece, _ in split_opaque("Click <b>here</b> to go.", alphabet)] == [
        "Click", "<b>", "here", "</b>", "to go.",
    ]  # fmt: skip
    assert [piece for piece, _ in split_opaque("set a = b | c", alphabet)] == ["set a", "=", "b", "|", "c"]
    assert "".join(piece + space for piece, space in split_opaque("a <b>b</b>c=d", alphabet)) == "a <b>b</b>c=d"
