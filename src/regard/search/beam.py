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
    N, B = beam, len(limits)
    finished: list[list[Hypothesis]] = [[] for _ in range(B)]
    alive = list(range(B))  # the sentences still in the batch
    decoding.select(torch.arange(B).repeat_interleave(N))
    tokens_R = torch.full((B * N,), start, dtype=torch.int64)
    history_RT = torch.empty(B * N, 0, dtype=torch.int64)
    # All beams of a sentence start equal, so only the first may go on at first.
    scores_BN = torch.full((B, N), -torch.inf)
    scores_BN[:, 0] = 0.0
    length = 0
    while alive:
        length += 1
        logs_RW = decoding.step(tokens_R)
        W = logs_RW.size(-1)
        logs_RW[:, list(forbidden)] = -torch.inf
        last = torch.tensor([length > limits[sentence] for sentence in alive])
        if last.any():
            logs_BNW = logs_RW.view(len(alive), N, W)
            ends_BN = logs_BNW[last, :, end].clone()
            logs_BNW[last] = -torch.inf
            logs_BNW[last, :, end] = ends_BN
        totals_BX = (scores_BN.view(-1, 1) + logs_RW).view(len(alive), N * W)
        # Twice as many as go on: at most one end a beam can be among them.
        best_BX, at_BX = totals_BX.topk(min(2 * N, totals_BX.size(1)), dim=1)
        if bool(best_BX.isnan().any()):
            raise ModelError("the model's log-probabilities are not numbers; its weights have diverged")
        going, rows, words, scores = [], [], [], []
        for place, (sentence, values, indices) in enumerate(zip(alive, best_BX.tolist(), at_BX.tolist(), strict=True)):
            onward = []
            for rank, (value, index) in enumerate(zip(values, indices, strict=True)):
                row, word = place * N + index // W, index % W
                if value == -torch.inf:
                    continue
                if word != end:
                    onward.append((row, word, value))
                elif rank < N and len(finished[sentence]) < N:
                    found = Hypothesis(history_RT[row].tolist(), value / length**length_penalty)
                    finished[sentence].append(found)
            if len(finished[sentence]) < N and onward:
                onward = (onward + [(onward[0][0], onward[0][1], -torch.inf)] * N)[:N]
                going.append(sentence)
                rows += [row for row, _, _ in onward]
                words += [word for _, word, _ in onward]
                scores += [score for _, _, score in onward]
        alive = going
        kept = torch.tensor(rows, dtype=torch.int64)
        tokens_R = torch.tensor(words, dtype=torch.int64)
        scores_BN = torch.tensor(scores).view(len(alive), N)
        history_RT = torch.cat([history_RT[kept], tokens_R[:, None]], dim=1)
        decoding.select(kept)
    return [sorted(found, key=lambda hypothesis: -hypothesis.score) for found in finished]
