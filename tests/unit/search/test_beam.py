"""The search over a toy language whose best sequences can be found by trying all."""

from itertools import product

import pytest
import torch
from torch import Tensor

from regard.errors import InputError, ModelError
from regard.search import beam_search

W, START, END = 5, 0, 1


class Toy:
    """Log-probabilities that depend on the sentence and on all tokens so far."""

    def __init__(self, sentences: list[int]) -> None:
        self.rows: list[tuple[int, tuple[int, ...]]] = [(sentence, (START,)) for sentence in sentences]
        self.fresh = True

    def step(self, tokens_R: Tensor) -> Tensor:
        if not self.fresh:
            self.rows = [(s, (*seen, int(t))) for (s, seen), t in zip(self.rows, tokens_R, strict=True)]
        self.fresh = False
        return torch.stack([logs(sentence, seen) for sentence, seen in self.rows])

    def select(self, rows: Tensor) -> None:
        self.rows = [self.rows[row] for row in rows.tolist()]


def logs(sentence: int, seen: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(hash((sentence, seen)) % 2**31)
    return torch.randn(W, generator=generator).mul(2).log_softmax(-1)


def score(sentence: int, tokens: tuple[int, ...], penalty: float) -> float:
    """The log-probability of a whole sequence over its length, the end counted."""
    total = 0.0
    seen: tuple[int, ...] = (START,)
    for token in (*tokens, END):
        total += float(logs(sentence, seen)[token])
        seen = (*seen, token)
    return float(total / (len(tokens) + 1) ** penalty)


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_beam_as_wide_as_the_space_finds_the_best(penalty: float) -> None:
    limit = 3
    found = beam_search(
        Toy([7, 8]), limits=[limit, limit], beam=64, start=START, end=END, forbidden=(START,), length_penalty=penalty
    )
    for sentence, hypotheses in zip((7, 8), found, strict=True):
        every = [
            (score(sentence, tokens, penalty), list(tokens))
            for length in range(limit + 1)
            for tokens in product((2, 3, 4), repeat=length)
        ]
        best = sorted(every, reverse=True)[: len(hypotheses)]
        assert len(hypotheses) == len(every)
        assert [h.tokens for h in hypotheses] == [tokens for _, tokens in best]
        assert [h.score for h in hypotheses] == pytest.approx([value for value, _ in best], abs=1e-5)


def test_greedy_takes_the_likeliest_each_time_and_stops_at_its_limit() -> None:
    found = beam_search(Toy([1, 2, 3]), limits=[4, 0, 2], beam=1, start=START, end=END)
    for sentence, limit, (best,) in zip((1, 2, 3), (4, 0, 2), found, strict=True):
        seen: tuple[int, ...] = (START,)
        expected: list[int] = []
        while len(expected) < limit and int(logs(sentence, seen).argmax()) != END:
            expected.append(int(logs(sentence, seen).argmax()))
            seen = (*seen, expected[-1])
        assert best.tokens == expected
        assert best.score == pytest.approx(score(sentence, tuple(expected), 1.0), abs=1e-5)


@pytest.mark.parametrize("beam", [1, 3])
def test_sentences_do_not_depend_on_their_neighbours(beam: int) -> None:
    limits = [5, 2, 9, 1]
    together = beam_search(Toy([1, 2, 3, 4]), limits=limits, beam=beam, start=START, end=END)
    for sentence, limit, expected in zip((1, 2, 3, 4), limits, together, strict=True):
        (alone,) = beam_search(Toy([sentence]), limits=[limit], beam=beam, start=START, end=END)
        assert [h.tokens for h in alone] == [h.tokens for h in expected]


def test_a_beam_needs_a_width() -> None:
    with pytest.raises(InputError, match="beam is 0"):
        beam_search(Toy([1]), limits=[1], beam=0, start=START, end=END)


@pytest.mark.parametrize("beam", [1, 3])
def test_what_is_not_a_number_ends_the_search(beam: int) -> None:
    class Broken(Toy):
        def step(self, tokens_R: Tensor) -> Tensor:
            return torch.full((len(self.rows), W), torch.nan)

    with pytest.raises(ModelError, match="not numbers"):
        beam_search(Broken([1]), limits=[5], beam=beam, start=START, end=END)
