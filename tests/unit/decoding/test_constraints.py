"""Required and forbidden phrases, in tokens and in the text that tokens spell."""

import time
import tracemalloc

import pytest

from regard.data import Tokenizer
from regard.decoding import Constraints
from regard.decoding.constraints import State
from regard.inference.word_constraints import PhraseBook

TEXTS = ["where is the station? the car is careful.", "Good evening! Good morning.", "Das Haus. Hausaufgaben"]


def after(rules: Constraints, *tokens: int) -> State:
    state = rules.start
    for token in tokens:
        following = rules.after(state, token)
        assert following is not None
        state = following
    return state


def test_phrases_that_begin_alike_may_come_in_any_order() -> None:
    rules = Constraints.of_tokens(6, required=[(1, 2), (1, 3)])
    assert rules.distance(after(rules, 1, 3, 1, 2)) == 0
    assert rules.distance(after(rules, 1, 2, 1, 3)) == 0
    assert rules.next_tokens(after(rules, 1)).tolist() == [2, 3]


def test_a_phrase_is_seen_within_a_longer_run() -> None:
    rules = Constraints.of_tokens(6, required=[(1, 1, 2)])
    assert rules.distance(after(rules, 1, 1, 1, 2)) == 0
    assert rules.distance(after(rules, 1, 1, 3)) == 3


def test_equal_phrases_must_come_as_often() -> None:
    rules = Constraints.of_tokens(10, required=[(4, 5), (4, 5)])
    assert rules.distance(after(rules, 4, 5)) == 2
    assert rules.distance(after(rules, 4, 5, 9, 4, 5)) == 0


def test_long_phrases_of_both_kinds_take_no_time() -> None:
    began = time.perf_counter()
    rules = Constraints.of_tokens(12, required=[(1, 2, 3), (4, 5, 6)], forbidden=[(7, 8, 9, 10, 11), (3, 4)])
    assert rules.distance(rules.start) == 6  # the other way round
    assert 4 not in rules.next_tokens(after(rules, 1, 2, 3))  # another word has to come between
    assert rules.distance(after(rules, 1, 2, 3)) == 4
    assert time.perf_counter() - began < 0.5


def test_constraints_are_small_beside_a_large_vocabulary() -> None:
    tracemalloc.start()
    try:
        kept = [Constraints.of_tokens(30_000, required=[(n, n + 1), (n + 2, n)]) for n in range(3, 103)]
        assert tracemalloc.get_traced_memory()[0] < len(kept) * 120_000
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS * 3, vocab_size=420)


def spelled_letter_by_letter(tokenizer: Tokenizer, text: str) -> list[int]:
    pieces = {tokenizer.spelled(number): number for number in range(tokenizer.vocab_size)}
    return [pieces[char] for char in f" {text}"]


@pytest.mark.parametrize(
    ("word", "text", "comes"),
    [
        ("station", "where is the station?", True),
        ("station", "Station master", True),
        ("STATION", "where is the station", True),
        ("car", "careful", False),
        ("car", "a scar", False),
        ("car", "the car", True),
        ("the car", "the car.", True),
        ("Haus", "Hausaufgaben", False),
        ("Haus", "„Haus“", True),
        ("müde", "so müde!", True),
        ("日本", "日本語", True),
        ("Tom", "Tom🙂", True),
    ],
)
@pytest.mark.parametrize("letters", [False, True])
def test_a_forbidden_word_is_found_however_the_text_is_split(
    tokenizer: Tokenizer, word: str, text: str, comes: bool, letters: bool
) -> None:
    rules = PhraseBook(tokenizer).constraints(forbid=[word])
    assert rules is not None
    if letters and not text.isascii():
        pytest.skip("these characters have no pieces of their own")
    state: State | None = rules.start
    for token in spelled_letter_by_letter(tokenizer, text) if letters else tokenizer.encode(text):
        state = None if state is None else rules.after(state, token)
    assert (state is None or rules.is_hanging(state)) == comes


@pytest.mark.parametrize(
    ("word", "text", "comes"),
    [
        ("evening", "Good evening!", True),
        ("evening", "Evening", True),
        ("Evening", "Good evening!", False),
        ("evening", "Good evenings", False),
        ("Good evening", "Good evening.", True),
        ("Good  evening ", "Good evening.", True),
        ("🙂", "Good 🙂 evening.", True),
        ("evening", "Good.evening", False),
        ("evening", "Good,evening", False),
        ("evening", "Good, evening", True),
        ("evening", "Good (evening)", True),
    ],
)
def test_a_required_word_counts_as_typed_or_with_a_capital(
    tokenizer: Tokenizer, word: str, text: str, comes: bool
) -> None:
    rules = PhraseBook(tokenizer).constraints(require=[word])
    assert rules is not None
    assert (rules.distance(after(rules, *tokenizer.encode(text))) == 0) == comes


def test_a_required_word_is_written_as_the_vocabulary_splits_it(tokenizer: Tokenizer) -> None:
    rules = PhraseBook(tokenizer).constraints(require=["stationary"])
    assert rules is not None
    usual = tokenizer.encode("stationary")
    assert rules.distance(rules.start) == len(usual)
    state = rules.start
    for token in usual:
        assert token in rules.next_tokens(state)
        state = after(rules, *usual[: usual.index(token) + 1])
    assert rules.distance(state) == 0
