"""Beam search over a step function. It knows nothing of the model: rows go in, log-probabilities come out.

best = argmax over sequences of  log P(sequence) / length^α
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from regard.errors import InputError, ModelError


class Decoding(Protocol):
    """Rows that are decoded side by side, each independent of the others."""

    def step(self, tokens_R: Tensor) -> Tensor:
        """Take the next token of each row in; give the log-probabilities (R, W) of the one after it."""

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order: reordered, repeated or dropped."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished sequence, without its start and its end."""

    tokens: list[int]
    score: float
    """The log-probability over length^α, the end counted in both."""


def beam_search(
    decoding: Decoding,
    *,
    limits: list[int],
    beam: int,
    start: int,
    end: int,
    forbidden: tuple[int, ...] = (),
    length_penalty: float = 1.0,
) -> list[list[Hypothesis]]:
    """Give the best sequences of each row, best first; a beam of 1 is greedy.

    A row ends when it has `beam` finished sequences, or at its limit of tokens, where all that is left is ended.
    """
    if beam < 1:
        raise InputError(f"beam is {beam}; it must be at least 1")
    search = _Search(limits, beam, start, end, length_penalty)
    decoding.select(torch.arange(len(limits)).repeat_interleave(beam))
    while search.alive:
        logs_RW = decoding.step(search.tokens_R)
        logs_RW[:, list(forbidden)] = -torch.inf
        decoding.select(search.advance(logs_RW))
    return [sorted(found, key=lambda hypothesis: -hypothesis.score) for found in search.finished]


class _Search:
    """What is written so far: `beam` rows for each sentence that is not finished."""

    def __init__(self, limits: list[int], beam: int, start: int, end: int, length_penalty: float) -> None:
        self._limits, self._beam, self._end, self._penalty = limits, beam, end, length_penalty
        B, N = len(limits), beam
        self.finished: list[list[Hypothesis]] = [[] for _ in limits]
        self.alive = list(range(B))
        self.tokens_R = torch.full((B * N,), start, dtype=torch.int64)
        self._history_RT = torch.empty(B * N, 0, dtype=torch.int64)
        # All beams of a sentence start equal, so only the first may go on at first.
        self._scores_BN = torch.full((B, N), -torch.inf)
        self._scores_BN[:, 0] = 0.0

    def advance(self, logs_RW: Tensor) -> Tensor:
        """Take the log-probabilities of a step in; give the rows that go on, in their new order."""
        N, W = self._beam, logs_RW.size(-1)
        self._end_at_limits(logs_RW)
        totals_BX = (self._scores_BN.view(-1, 1) + logs_RW).view(len(self.alive), N * W)
        # Twice as many as go on: at most one end a beam can be among them.
        best_BX, at_BX = totals_BX.topk(min(2 * N, totals_BX.size(1)), dim=1)
        if bool(best_BX.isnan().any()):
            raise ModelError("the model's log-probabilities are not numbers; its weights have diverged")
        going: list[int] = []
        onward: list[tuple[int, int, float]] = []
        for place, (values, indices) in enumerate(zip(best_BX.tolist(), at_BX.tolist(), strict=True)):
            candidates = [(place * N + at // W, at % W, value) for value, at in zip(values, indices, strict=True)]
            if more := self._sorted_out(self.alive[place], candidates):
                going.append(self.alive[place])
                onward += more
        rows = torch.tensor([row for row, _, _ in onward], dtype=torch.int64)
        self.alive = going
        self.tokens_R = torch.tensor([word for _, word, _ in onward], dtype=torch.int64)
        self._scores_BN = torch.tensor([score for _, _, score in onward]).view(len(going), N)
        self._history_RT = torch.cat([self._history_RT[rows], self.tokens_R[:, None]], dim=1)
        return rows

    def _end_at_limits(self, logs_RW: Tensor) -> None:
        """Leave sentences that have all the tokens they may have no choice but to end."""
        over = torch.tensor([self._history_RT.size(1) >= self._limits[sentence] for sentence in self.alive])
        if over.any():
            logs_BNW = logs_RW.view(len(self.alive), self._beam, -1)
            ends_BN = logs_BNW[over, :, self._end].clone()
            logs_BNW[over] = -torch.inf
            logs_BNW[over, :, self._end] = ends_BN

    def _sorted_out(self, sentence: int, candidates: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
        """Keep the candidates of a sentence that have ended; give those that go on, none if it is finished."""
        N, finished = self._beam, self.finished[sentence]
        onward = []
        for rank, (row, word, score) in enumerate(candidates):
            if score == -torch.inf:
                continue
            if word != self._end:
                onward.append((row, word, score))
            elif rank < N and len(finished) < N:
                tokens = self._history_RT[row].tolist()
                finished.append(Hypothesis(tokens, score / (len(tokens) + 1) ** self._penalty))
        if len(finished) >= N or not onward:
            return []
        # A sentence keeps its number of rows: the missing ones are copies that can never win.
        return (onward + [(*onward[0][:2], -torch.inf)] * N)[:N]
