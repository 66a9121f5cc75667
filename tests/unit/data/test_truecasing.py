"""Truecasing: words get the capitals that they usually have within sentences."""

from pathlib import Path

import pytest

from regard.data.truecasing import Truecaser, without_capitals
from regard.errors import ModelError

GERMAN = [
    "Ich sehe das Haus.",
    "Das ist ein Haus in Berlin.",
    "Haus und Hof? Nein, nur das Haus.",
    "ALLES IST GROSS",
] * 3
ENGLISH = ["Then I see Tom.", "He and I saw Tom. Tom saw me."] * 3


@pytest.fixture
def caser() -> Truecaser:
    return Truecaser.learn({"de": GERMAN, "en": iter(ENGLISH)})


def test_words_within_sentences_decide(caser: Truecaser) -> None:
    assert caser.restored("das haus ist in berlin. ich sehe es!", "de") == "Das Haus ist in Berlin. Ich sehe es!"
    assert caser.restored("tom, i see tom's house", "en") == "Tom, I see Tom's house"


def test_languages_do_not_mix(caser: Truecaser) -> None:
    assert caser.restored("i und haus", "de") == "I und Haus"
    assert caser.restored("the haus", "en") == "The haus"
    assert caser.restored("la maison", "fr") == "la maison"


def test_rare_words_and_texts_in_capitals_teach_nothing(caser: Truecaser) -> None:
    rare = Truecaser.learn({"de": ["Das ist Selten.", "Das ist Selten."]})
    assert rare.restored("es ist selten", "de") == "Es ist selten"
    assert caser.restored("es ist gross", "de") == "Es ist gross"


def test_saved_and_loaded_it_is_the_same(caser: Truecaser, tmp_path: Path) -> None:
    caser.save(tmp_path / "capitals.json")
    assert Truecaser.load(tmp_path / "capitals.json").to_json() == caser.to_json()


@pytest.mark.parametrize("content", ['{"de": "Haus"}', '{"de": [1]}'])
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "capitals.json").write_text(content)
    with pytest.raises(ModelError, match="'de' is not a list of words"):
        Truecaser.load(tmp_path / "capitals.json")


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("ICH BIN MÜDE. WO IST TOM?", "Ich bin müde. Wo ist tom?"),
        ("DIE STRAßE IST NASS", "Die straße ist nass"),
        ("NASA", "NASA"),
        ("Die NASA", "Die NASA"),
        ("12 34", "12 34"),
        ("", ""),
    ],
)
def test_a_text_in_capitals_is_read_in_lower_case(text: str, folded: str) -> None:
    assert without_capitals(text) == folded
