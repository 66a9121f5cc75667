"""Windows over contexts, and the spans in them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data import Tokenizer
from regard.data.squad import Answer
from regard.errors import ConfigError, DataError, InputError
from regard.tasks.extractive import ExtractiveTask, Window

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


def test_an_overlap_of_half_a_window_is_refused() -> None:
    with pytest.raises(ConfigError, match="overlap 20 is not less than half of the window of 40"):
        ExtractiveTask(window=40, overlap=20)


def test_the_best_span_has_the_highest_sum_of_start_and_end_and_is_no_longer_than_allowed() -> None:
    context = "one two three four"
    window = Window([9] * 7, 3, [(0, 3), (3, 7), (7, 13), (13, 18)])
    generator = torch.Generator().manual_seed(1)
    for _ in range(50):
        logits = torch.randn(7, 2, generator=generator)
        scores = {(i, j): float(logits[3 + i, 0] + logits[3 + j, 1]) for i in range(4) for j in range(i, min(4, i + 2))}
        (i, j), best = max(scores.items(), key=lambda item: item[1])
        (span,) = window.best(logits, context, longest=2, count=1)
        assert span.text == context[window.offsets[i][0] : window.offsets[j][1]].strip()
        assert context[span.start : span.end] == span.text
        assert span.logit == pytest.approx(best)
