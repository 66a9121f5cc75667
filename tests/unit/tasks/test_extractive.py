"""Windows over contexts, and the spans in them."""

import unicodedata
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data import Tokenizer
from regard.data.squad import Answer
from regard.errors import ConfigError, DataError, InputError
from regard.tasks.extractive import ExtractiveTask, Span, Window, _ranked

TEXT = "Anna went to the garden Ben took a red ball and gave it to Clara who was in the kitchen with Dan"
WORDS = TEXT.split()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([" ".join(WORDS)] * 3, vocab_size=420)


def example(context: str, question: str, *answers: Answer) -> dict[str, object]:
    return {"context": context, "question": question, "answers": list(answers)}


@given(
    words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=120), at=st.integers(0, 119), count=st.integers(1, 3)
)
def test_every_token_of_a_context_is_in_a_window_and_a_short_answer_is_whole_in_one(
    tokenizer: Tokenizer, words: list[str], at: int, count: int
) -> None:
    task = ExtractiveTask(window=40, overlap=15)
    first = at % len(words)
    start = len(" ".join(words[:first])) + (1 if first else 0)
    answer = " ".join(words[first : first + count])
    context = " ".join(words)
    pairs = task.encode([example(context, "who was it", Answer(answer, start))], tokenizer, tokenizer)
    found = []
    for tokens, (begin, end) in pairs:
        assert len(tokens) + 1 <= 40
        if (begin, end) != (0, 0):
            found.append(tokenizer.decode(tokens[begin : end + 1]).strip())
    assert found
    assert set(found) == {answer}


def test_windows_cover_the_context_without_a_gap(tokenizer: Tokenizer) -> None:
    task = ExtractiveTask(window=32, overlap=8)
    context = " ".join(WORDS * 5)
    windows = task.windows(context, "who", tokenizer)
    covered = {place for window in windows for place in window.offsets}
    assert covered == set(tokenizer.encode_with_offsets(context)[1])
    assert len(windows) > 3


def test_a_question_without_an_answer_points_at_the_first_token(tokenizer: Tokenizer) -> None:
    pairs = ExtractiveTask().encode([example("Anna went to the garden", "who")], tokenizer, tokenizer)
    assert [target for _, target in pairs] == [[0, 0]]


def test_an_answer_that_is_not_in_its_context_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match="the answer 'Clara' to 'who' is not in its context"):
        ExtractiveTask().encode([example("Anna went", "who", Answer("Clara", None))], tokenizer, tokenizer)


def test_a_question_that_fills_the_window_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match="leaves no place for its context"):
        ExtractiveTask(window=16, overlap=4).windows("Anna", " ".join(WORDS), tokenizer)


def test_an_overlap_of_a_whole_window_is_refused() -> None:
    with pytest.raises(ConfigError, match="overlap 40 is not less than the window of 40"):
        ExtractiveTask(window=40, overlap=40)
    with pytest.raises(ConfigError, match="threshold is nan"):
        ExtractiveTask(threshold=float("nan"))


@pytest.mark.parametrize("answer", ["Café", "Zoë Kovać", "Müller"])
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_an_answer_that_ends_in_an_accent_is_learned(tokenizer: Tokenizer, answer: str, form: Any) -> None:
    context, answer = (unicodedata.normalize(form, text) for text in (f"Anna met {answer} in the garden", answer))
    ((tokens, (first, last)),) = ExtractiveTask().encode(
        [example(context, "who", Answer(answer, None))], tokenizer, tokenizer
    )
    assert unicodedata.normalize("NFC", answer) == tokenizer.decode(tokens[first : last + 1]).strip()


def test_an_answer_longer_than_the_overlap_has_a_window_of_its_own(tokenizer: Tokenizer) -> None:
    task = ExtractiveTask(window=40, overlap=4)
    context = " ".join(WORDS * 4)
    for first in range(0, 60, 7):
        words = context.split()
        answer = " ".join(words[first : first + 12])
        start = len(" ".join(words[:first])) + (1 if first else 0)
        pairs = task.encode([example(context, "who", Answer(answer, start))], tokenizer, tokenizer)
        held = [tokenizer.decode(tokens[place[0] : place[1] + 1]).strip() for tokens, place in pairs if any(place)]
        assert held
        assert set(held) == {answer}
        assert all(len(tokens) + 1 <= 40 for tokens, _ in pairs)
    with pytest.raises(InputError, match="has .* tokens, and a window has place for 1 to"):
        task.encode([example(context, "who", Answer(context[:300], 0))], tokenizer, tokenizer)


def test_a_span_of_signs_is_no_answer_and_hides_none() -> None:
    context = "Anna . , went"
    window = Window([9] * 5, 1, [(0, 4), (5, 6), (7, 8), (8, 13)], 13)
    logits = torch.zeros(5, 2)
    logits[2] = 10.0  # the full stop by itself
    logits[1] = 6.0
    (span,) = window.best(logits, context, longest=1, count=1)
    assert span.text == "Anna"
    assert window.best(logits, ". . . .", longest=2, count=2) == []


def test_an_accent_belongs_to_the_letter_before_it() -> None:
    context = "Ana bebe cafe\u0301 e vai."
    window = Window([9] * 6, 1, [(0, 3), (4, 8), (9, 13), (14, 16), (17, 21)], 21)
    logits = torch.full((6, 2), -5.0)
    logits[3] = 5.0
    (span,) = window.best(logits, context, longest=3, count=1)
    assert span.text == "cafe\u0301"


def test_signs_stay_where_they_are_tokens_of_their_own() -> None:
    context = "in the U.S. office."
    window = Window([9] * 6, 1, [(0, 2), (3, 6), (7, 10), (10, 11), (12, 19)], 19)
    logits = torch.full((6, 2), -5.0)
    logits[3, 0] = logits[4, 1] = 5.0
    assert window.best(logits, context, longest=3, count=1)[0].text == "U.S."
    logits[5] = 9.0
    assert window.best(logits, context, longest=3, count=1)[0].text == "office"


def test_the_probability_of_no_answer_does_not_depend_on_the_threshold() -> None:
    span = Span("Anna", 0, 4, 1.0)
    for threshold, first in ((0.0, "Anna"), (2.0, "")):
        ranked = _ranked([span], 0.0, threshold, 2.0, 1)
        assert ranked[0].text == first
        scores = {one.text: round(one.score, 4) for one in ranked}
        assert scores == {"Anna": 0.3679, "": 0.1353}


def test_the_best_span_has_the_highest_sum_of_start_and_end_and_is_no_longer_than_allowed() -> None:
    context = "one two three four"
    window = Window([9] * 7, 3, [(0, 3), (3, 7), (7, 13), (13, 18)], 18)
    generator = torch.Generator().manual_seed(1)
    for _ in range(50):
        logits = torch.randn(7, 2, generator=generator)
        scores = {(i, j): float(logits[3 + i, 0] + logits[3 + j, 1]) for i in range(4) for j in range(i, min(4, i + 2))}
        (i, j), best = max(scores.items(), key=lambda item: item[1])
        (span,) = window.best(logits, context, longest=2, count=1)
        assert span.text == context[window.offsets[i][0] : window.offsets[j][1]].strip()
        assert context[span.start : span.end] == span.text
        assert span.logit == pytest.approx(best)
