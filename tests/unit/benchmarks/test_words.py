"""Pairs of single words from pairs of sentences."""

from benchmarks.translation.words import from_sentences, from_texts, with_capitals

PAIRS = [
    ("The dog sleeps.", "Der Hund schläft."),
    ("My dog is old.", "Mein Hund ist alt."),
    ("That dog barks.", "Jener Hund bellt."),
    ("The house is old.", "Das Haus ist alt."),
    ("A red house is here.", "Ein rotes Haus ist hier."),
    ("My house sleeps.", "Mein Haus schläft."),
]


def test_words_that_share_their_sentences_translate_each_other() -> None:
    found = from_sentences(PAIRS * 4)
    for german, english in (("Hund", "dog"), ("Haus", "house"), ("alt", "old"), ("schläft", "sleeps")):
        assert found["2en"][german] == english
        assert found["2de"][english] == german
    assert "rotes" not in found["2en"], "a word of four sentences is too rare"


def test_the_first_word_of_a_sentence_is_left_out_for_its_capital() -> None:
    assert not {"The", "My", "That"} & from_sentences(PAIRS * 4)["2de"].keys()


def test_texts_of_one_word_are_translated_as_most_packages_do() -> None:
    rows = [("Close", "Schließen", package) for package in "abc"]
    rows += [("Close", "Zu", "d"), ("File", "Datei", "a"), ("Open file", "Datei öffnen", "a")]
    found = from_texts(rows)
    assert found == {"2de": {"Close": "Schließen"}, "2en": {"Schließen": "Close"}}


def test_words_in_lower_case_are_learned_with_a_capital_too() -> None:
    assert with_capitals({"rot": "red", "Hund": "dog"}) == {"rot": "red", "Rot": "Red", "Hund": "dog"}
