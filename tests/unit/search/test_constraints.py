"""The automaton behind required and forbidden phrases."""

import time

from regard.search.constraints import Constraints, Progress


def after(rules: Constraints, *tokens: int) -> Progress:
    progress = rules.start
    for token in tokens:
        following = rules.after(progress, token)
        assert following is not None
        progress = following
    return progress


def test_phrases_that_begin_alike_may_come_in_any_order() -> None:
    rules = Constraints(required=((1, 2), (1, 3)))
    assert rules.distance(after(rules, 1, 3, 1, 2)) == 0
    assert rules.distance(after(rules, 1, 2, 1, 3)) == 0
    assert rules.next_tokens(after(rules, 1)) == [2, 3]


def test_a_phrase_is_seen_within_a_longer_run() -> None:
    rules = Constraints(required=((1, 1, 2),))
    assert rules.distance(after(rules, 1, 1, 1, 2)) == 0
    assert rules.distance(after(rules, 1, 1, 3)) == 3


def test_equal_phrases_must_come_as_often() -> None:
    rules = Constraints(required=((4, 5), (4, 5)))
    assert rules.distance(after(rules, 4, 5)) == 2
    assert rules.distance(after(rules, 4, 5, 9, 4, 5)) == 0


def test_long_phrases_of_both_kinds_take_no_time() -> None:
    rules = Constraints(required=((1, 2, 3), (4, 5, 6)), forbidden=((7, 8, 9, 10, 11), (3, 4)))
    began = time.perf_counter()
    assert rules.distance(rules.start) == 6  # the other way round
    assert 4 not in rules.next_tokens(after(rules, 1, 2, 3))  # another word has to come between
    assert rules.distance(after(rules, 1, 2, 3)) == 4
    assert time.perf_counter() - began < 0.5
