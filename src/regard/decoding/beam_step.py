"""One step of the search: beam search, constrained beam search or sampling."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.decoding.beams import DEAD, Beams, Floats, Ints
from regard.decoding.candidates import CandidateSelector
from regard.decoding.phrases import UNREACHABLE


@dataclass
class Choice:
    """The continuation of each row: its parent row, token and score."""

    parents_BN: Ints
    words_BN: Ints
    scores_BN: Floats

    @classmethod
    def nothing(cls, B: int, N: int) -> "Choice":
        """Continue no row. Rows that do not still name a parent and a word, for there is no row without."""
        parents_BN = np.tile(np.arange(N), (B, 1))
        return cls(parents_BN, np.zeros((B, N), dtype=np.int64), np.full((B, N), DEAD))


@dataclass(frozen=True)
class Candidates:
    """The best continuations of each sentence, best first: from which row, with which word, worth how much."""

    rows_BK: Ints
    words_BK: Ints
    scores_BK: Floats
    ranks_BK: Floats
    """What they are ordered by: the score, less what a word costs that other groups have chosen."""

    def apart_from(self, words_BX: Ints, cost: float) -> "Candidates":
        """Return the candidates reranked; each occurrence of a token in `words_BX` costs `cost`."""
        times_BK = (self.words_BK[:, :, None] == words_BX[:, None, :]).sum(2)
        ranks_BK = self.ranks_BK - cost * times_BK
        order_BK = np.argsort(-ranks_BK, axis=1, kind="stable")
        return Candidates(
            *(np.take_along_axis(x, order_BK, axis=1) for x in (self.rows_BK, self.words_BK, self.scores_BK, ranks_BK))
        )


def choose_by_beam(beams: Beams, logs_BNW: Tensor, end: int, selector: CandidateSelector) -> Choice:
    """Take the best continuations of each group; what ends among the best is finished."""
    settings = beams.settings
    B, N, W = logs_BNW.shape
    if N == 1 and all(sentence.request.constraints is None for sentence in beams.sentences):
        return _choose_the_best(beams, logs_BNW, end, selector)
    M = N // settings.groups
    choice = Choice.nothing(B, N)
    scores_BN = torch.from_numpy(beams.scores_BN)
    for group in range(settings.groups):
        rows = slice(group * M, (group + 1) * M)
        # Twice as many as go on, for each row may end; and words that other groups have chosen may fall behind.
        wanted = 2 * M + group * M * M
        totals_BK, at_BK = selector.best_continuations(logs_BNW[:, rows], scores_BN[:, rows], wanted)
        scores_BK, flat_BK = totals_BK.numpy(), at_BK.numpy()
        candidates = Candidates(group * M + flat_BK // W, flat_BK % W, scores_BK, scores_BK)
        if group > 0:
            chosen_BX = np.where(choice.scores_BN == DEAD, -1, choice.words_BN)[:, : group * M]
            candidates = candidates.apart_from(chosen_BX, settings.diversity)
        _choose_freely(beams, choice, group, candidates, end)
        for place, sentence in enumerate(beams.sentences):
            if sentence.request.constraints is not None:
                _choose_under_constraints(beams, choice, place, group, candidates, logs_BNW[place], end)
    return choice


def _choose_the_best(beams: Beams, logs_BNW: Tensor, end: int, selector: CandidateSelector) -> Choice:
    """Continue the one row of each sentence with its best word, or end it: a beam of one, in fewer steps."""
    totals_B1, at_B1 = selector.best_continuations(logs_BNW, torch.from_numpy(beams.scores_BN), 1)
    scores_B1, words_B1 = totals_B1.numpy(), at_B1.numpy()
    ends_B1 = words_B1 == end
    if ends_B1.any():
        for place in np.flatnonzero(ends_B1[:, 0] & (scores_B1[:, 0] != DEAD)).tolist():
            beams.finish(place, 0, 0, float(scores_B1[place, 0]))
        scores_B1[ends_B1] = DEAD
    return Choice(np.zeros_like(words_B1), words_B1, scores_B1)


def _choose_freely(beams: Beams, choice: Choice, group: int, found: Candidates, end: int) -> None:
    """Fill the choice for one group of all sentences; those with constraints are seen to afterwards."""
    M = beams.settings.rows // beams.settings.groups
    words_BK, scores_BK = found.words_BK[:, : 2 * M], found.scores_BK[:, : 2 * M]
    ends_BK = words_BK == end
    for place, rank in np.argwhere(ends_BK[:, :M] & (scores_BK[:, :M] != DEAD)).tolist():
        if beams.sentences[place].request.constraints is None:
            beams.finish(place, group, int(found.rows_BK[place, rank]), float(scores_BK[place, rank]))
    # The best M that do not end. Where there are fewer, the others count for nothing.
    onward_BM = np.argsort(ends_BK, axis=1, kind="stable")[:, :M]
    at_B1 = np.arange(len(onward_BM))[:, None]
    rows = slice(group * M, group * M + onward_BM.shape[1])
    choice.parents_BN[:, rows] = found.rows_BK[at_B1, onward_BM]
    choice.words_BN[:, rows] = words_BK[at_B1, onward_BM]
    choice.scores_BN[:, rows] = np.where(ends_BK[at_B1, onward_BM], DEAD, scores_BK[at_B1, onward_BM])


def _choose_under_constraints(
    beams: Beams, choice: Choice, place: int, group: int, found: Candidates, logs_NW: Tensor, end: int
) -> None:
    """Fill the choice for one group of a sentence that has constraints (after Post and Vilar, 2018)."""
    M = beams.settings.rows // beams.settings.groups
    first = group * M
    rules, progress = beams.sentences[place].request.constraints, beams.sentences[place].progress
    assert rules is not None
    onward: list[Continuation] = []
    ended: list[tuple[float, int]] = []
    alive = [row for row in range(first, first + M) if beams.scores_BN[place, row] != DEAD]
    distances = {row: beams.distances_after(place, row, end) for row in alive}
    # Only where nothing likely goes on are all words considered.
    for likely in (True, False):
        for (row, word), rank in _considered(beams, place, alive, found, logs_NW, likely=likely).items():
            left = int(distances[row][word])
            score = float(beams.scores_BN[place, row]) + float(logs_NW[row, word])
            if left >= UNREACHABLE or score == DEAD:
                continue
            if word == end:
                ended.append((score, row))
            else:
                hanging = bool(rules.step(progress[row]).hanging_W[word])
                onward.append(Continuation(left, rank if rank is not None else score, row, word, score, hanging))
        if onward or ended:
            break
    for score, row in sorted(ended, reverse=True)[:M]:
        beams.finish(place, group, row, score)
    choice.scores_BN[place, first : first + M] = DEAD
    for row, chosen in enumerate(_spread(onward, M), first):
        choice.parents_BN[place, row], choice.words_BN[place, row] = chosen.row, chosen.word
        choice.scores_BN[place, row] = chosen.score


def _considered(
    beams: Beams, place: int, rows: list[int], found: Candidates, logs_NW: Tensor, *, likely: bool
) -> dict[tuple[int, int], float | None]:
    """Return the rows and words to choose from, with what they are ordered by if that is not their score.

    Beside the best of all rows these are the best words of each row, for rows that have met more are worth less, and
    the best words that bring what is required nearer.
    """
    columns = (found.rows_BK[place].tolist(), found.words_BK[place].tolist(), found.ranks_BK[place].tolist())
    considered: dict[tuple[int, int], float | None] = {
        (row, word): rank for row, word, rank in zip(*columns, strict=True) if row in rows
    }
    rules, progress = beams.sentences[place].request.constraints, beams.sentences[place].progress
    assert rules is not None
    width = 1 + beams.settings.rows // beams.settings.groups
    for row in rows:
        logs_W = logs_NW[row]
        words = logs_W.topk(min(width, len(logs_W))).indices if likely else logs_W.isfinite().nonzero()[:, 0]
        helping = torch.from_numpy(rules.next_tokens(progress[row]))
        helping = helping[logs_W[helping].topk(min(width, len(helping))).indices]
        for word in (*words.tolist(), *helping.tolist()):
            considered.setdefault((row, word), None)
    return considered


class Continuation(NamedTuple):
    """A continuation of a sentence that has constraints."""

    left: int
    """How many tokens are needed, at the least, before it may end."""
    rank: float
    row: int
    word: int
    score: float
    hanging: bool
    """Whether a forbidden phrase has come unless its last word goes on."""


def _spread(onward: list[Continuation], count: int) -> list[Continuation]:
    """Share rows among hypotheses that have met more and fewer of their constraints, so that some get on with them."""
    banks: dict[int, list[Continuation]] = {}
    hanging = 0
    for candidate in sorted(onward, key=lambda candidate: -candidate.rank):
        hanging += candidate.hanging
        if not candidate.hanging or hanging <= count // 2:  # they may all come to nothing
            banks.setdefault(candidate.left, []).append(candidate)
    order = [banks[left] for left in sorted(banks)]
    chosen: list[Continuation] = []
    while len(chosen) < count and any(order):
        for bank in order:  # one of each in turn, those that have met the most first
            if bank and len(chosen) < count:
                chosen.append(bank.pop(0))
    return chosen


def choose_at_random(beams: Beams, logs_BNW: Tensor, end: int) -> Choice:
    """Sample a token for each row, keyed by the seeds, the row and the position."""
    settings = beams.settings
    B, N, _ = logs_BNW.shape
    # Less the largest, which makes no difference and stays finite at any temperature.
    logs_BNW64 = logs_BNW.double()
    scaled_BNW = (logs_BNW64 - logs_BNW64.amax(-1, keepdim=True)) / settings.temperature
    likely_BNW = _likely(scaled_BNW, settings.top_k, settings.top_p, settings.min_p)
    choice = Choice.nothing(B, N)
    for place, sentence in enumerate(beams.sentences):
        for row in np.flatnonzero(beams.scores_BN[place] != DEAD).tolist():
            weights_W: Floats = likely_BNW[place, row].softmax(-1).numpy()
            if sentence.request.constraints is not None:
                weights_W = _fitting(beams, place, row, weights_W, logs_BNW[place, row], end)
            if not (weights_W > 0.0).any():  # no token may follow: the row ends here, and is nothing
                continue
            word = _drawn(weights_W, (settings.seed, sentence.request.seed, row, int(beams.lengths_B[place])))
            score = float(beams.scores_BN[place, row]) + float(logs_BNW[place, row, word])
            if word == end:
                beams.finish(place, 0, row, score)
            else:
                choice.words_BN[place, row], choice.scores_BN[place, row] = word, score
    return choice


def _likely(logs_BNW: Tensor, top_k: int, top_p: float, min_p: float) -> Tensor:
    """Exclude the tokens that are not to be sampled."""
    if top_k:
        least = logs_BNW.topk(min(top_k, logs_BNW.size(-1)), dim=-1).values[..., -1:]
        logs_BNW = logs_BNW.masked_fill(logs_BNW < least, -torch.inf)
    if min_p:
        most = logs_BNW.amax(-1, keepdim=True)
        logs_BNW = logs_BNW.masked_fill(logs_BNW < most + float(np.log(min_p)), -torch.inf)
    if top_p < 1.0:
        sorted_BNW, order_BNW = logs_BNW.softmax(-1).sort(dim=-1, descending=True, stable=True)
        beyond_BNW = sorted_BNW.cumsum(-1) - sorted_BNW >= top_p
        logs_BNW = logs_BNW.masked_fill(beyond_BNW.gather(-1, order_BNW.argsort(-1)), -torch.inf)
    return logs_BNW


def _fitting(beams: Beams, place: int, row: int, weights_W: Floats, logs_W: Tensor, end: int) -> Floats:
    """Exclude the tokens after which what is required does not fit; it comes itself when nothing else is left.

    Where no token fits, all weights are zero.
    """
    sentence = beams.sentences[place]
    rules = sentence.request.constraints
    assert rules is not None
    fits_W = beams.distances_after(place, row, end) < UNREACHABLE
    helps_W = np.zeros_like(fits_W)
    helps_W[rules.next_tokens(sentence.progress[row])] = True
    possible_W = np.isfinite(logs_W.numpy())
    for some_W in (weights_W > 0.0, helps_W, possible_W):
        some_W &= fits_W & possible_W
        if some_W.any():
            kept_W: Floats = np.where(some_W, weights_W, 0.0)
            return kept_W if kept_W.any() else some_W.astype(np.float64)  # so unlikely that nothing is left of it
    return np.zeros_like(weights_W)


def _drawn(weights_W: Floats, key: tuple[int, ...]) -> int:
    point = np.random.Generator(np.random.Philox(np.random.SeedSequence(key))).random()
    summed_W = np.cumsum(weights_W)
    return int(np.searchsorted(summed_W, point * summed_W[-1], side="right"))
