"""State of the search: the hypotheses of each sentence, their scores, and the finished ones."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.decoding.constraints import State
from regard.decoding.phrases import UNREACHABLE
from regard.decoding.settings import Hypothesis, Request, SearchSettings
from regard.errors import ModelError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

TextOf = Callable[[list[int]], Hashable]
"""What tokens spell: hypotheses for which it is the same are one."""

DEAD = -np.inf
"""The score of a row that does not go on."""


@dataclass
class Sentence:
    """One sentence: its request, and what has ended of it in each group."""

    number: int
    request: Request
    finished: list[list[Hypothesis]]
    slots: int = 1
    """How many sentences may be searched for with it at once, itself counted."""
    progress: list[State] = field(default_factory=list)
    """How far each row is with the constraints, where there are any."""
    held_open: set[int] = field(default_factory=set)
    """Rows that the model would have ended if all required phrases had been met."""
    told: int = 0
    """How many of its tokens were streamed."""


class Beams:
    """B sentences of N rows each. The place of a sentence is the same in every array here and in the decoder."""

    def __init__(self, settings: SearchSettings, sentences: list[Sentence], text_of: TextOf | None = None) -> None:
        B, N = len(sentences), settings.rows
        self.settings, self.sentences, self._text_of = settings, sentences, text_of
        self.lengths_B: Ints = np.zeros(B, dtype=np.int64)
        self.limits_B: Ints = np.array([sentence.request.limit for sentence in sentences], dtype=np.int64)
        self.scores_BN: Floats = np.zeros((B, N))
        if not settings.sample:  # all rows of a beam start equal, so that one of them counts
            self.scores_BN.reshape(B, settings.groups, N // settings.groups)[:, :, 1:] = DEAD
        longest = max((len(sentence.request.prefix) for sentence in sentences), default=0)
        self.tokens_BNT: Ints = np.zeros((B, N, max(32, longest)), dtype=np.int64)
        self.coverage_BNS: Floats | None = None
        penalized = settings.repetition_penalty != 1.0
        self.own_BN: Floats | None = np.zeros((B, N)) if penalized else None  # log P of each row by the model
        self.own_ends_BN: Floats | None = None  # and of its end
        for sentence in sentences:
            if sentence.request.constraints is not None:
                sentence.progress = [sentence.request.constraints.start] * N

    def start_after_prefixes(self, log_probabilities_B: Floats) -> None:
        """Start each sentence after its prefix, which has this log-probability."""
        self.scores_BN = np.where(self.scores_BN == DEAD, DEAD, log_probabilities_B[:, None])
        if self.own_BN is not None:
            self.own_BN += log_probabilities_B[:, None]
        for place, sentence in enumerate(self.sentences):
            prefix, rules = sentence.request.prefix, sentence.request.constraints
            self.tokens_BNT[place, :, : len(prefix)] = prefix
            self.lengths_B[place] = len(prefix)
            if rules is not None:
                progress = rules.start
                for token in prefix:
                    after = rules.after(progress, token)
                    assert after is not None, "a request whose prefix is forbidden was let through"
                    progress = after
                sentence.progress = [progress] * self.settings.rows

    @property
    def last_BN(self) -> Ints:
        """The token that each row goes on from, once it has one."""
        return self.tokens_BNT[np.arange(len(self.sentences)), :, self.lengths_B - 1]

    def join(self, others: "Beams") -> None:
        """Admit further sentences, behind those that are there."""
        self.sentences = [*self.sentences, *others.sentences]
        self.lengths_B = np.concatenate([self.lengths_B, others.lengths_B])
        self.limits_B = np.concatenate([self.limits_B, others.limits_B])
        self.scores_BN = np.concatenate([self.scores_BN, others.scores_BN])
        if self.own_BN is not None and others.own_BN is not None:
            self.own_BN = np.concatenate([self.own_BN, others.own_BN])
        self.tokens_BNT = _together(self.tokens_BNT, others.tokens_BNT)
        if others.coverage_BNS is not None:
            before_BNS = self.coverage_BNS
            self.coverage_BNS = (
                others.coverage_BNS if before_BNS is None else _together(before_BNS, others.coverage_BNS)
            )

    def keep(self, places: list[int]) -> None:
        """Keep the sentences at these places, in this order."""
        self.sentences = [self.sentences[place] for place in places]
        self.lengths_B, self.limits_B = self.lengths_B[places], self.limits_B[places]
        self.scores_BN, self.tokens_BNT = self.scores_BN[places], self.tokens_BNT[places]
        if self.own_BN is not None:
            self.own_BN = self.own_BN[places]
        if self.coverage_BNS is not None:
            self.coverage_BNS = self.coverage_BNS[places]

    def cover(self, attention_BNS: Floats) -> None:
        """Add what each source position was given of attention in this step; a source may be longer than all before."""
        if self.coverage_BNS is None:
            self.coverage_BNS = np.zeros_like(attention_BNS)
        wider = attention_BNS.shape[2] - self.coverage_BNS.shape[2]
        if wider > 0:
            self.coverage_BNS = np.pad(self.coverage_BNS, ((0, 0), (0, 0), (0, wider)))
        self.coverage_BNS[:, :, : attention_BNS.shape[2]] += attention_BNS

    def grow(self, parents_BN: Ints, words_BN: Ints, scores_BN: Floats) -> None:
        """Continue each row from one of its sentence's rows with a word."""
        B, _, space = self.tokens_BNT.shape
        if B and int(self.lengths_B.max()) == space:
            self.tokens_BNT = np.concatenate([self.tokens_BNT, np.zeros_like(self.tokens_BNT)], axis=2)
        places_B = np.arange(B)
        if self.settings.rows > 1:
            self.tokens_BNT = self.tokens_BNT[places_B[:, None], parents_BN]
            if self.coverage_BNS is not None:
                self.coverage_BNS = self.coverage_BNS[places_B[:, None], parents_BN]
        self.tokens_BNT[places_B, :, self.lengths_B] = words_BN
        self.scores_BN = scores_BN
        self.lengths_B = self.lengths_B + 1
        for place, sentence in enumerate(self.sentences):
            if sentence.request.constraints is not None:
                self._follow(sentence, parents_BN[place], words_BN[place], scores_BN[place])

    def _follow(self, sentence: Sentence, parents_N: Ints, words_N: Ints, scores_N: Floats) -> None:
        rules, before = sentence.request.constraints, sentence.progress
        assert rules is not None
        sentence.progress = []
        sentence.held_open = {row for row, parent in enumerate(parents_N.tolist()) if parent in sentence.held_open}
        for row, parent in enumerate(parents_N.tolist()):
            after = rules.after(before[parent], int(words_N[row])) if scores_N[row] != DEAD else rules.start
            assert after is not None, "a forbidden phrase was let through"
            sentence.progress.append(after)

    def distances_after(self, place: int, row: int, end: int) -> Ints:
        """Return how many more tokens a row needs after each token (W,), more than there may be where it is in vain."""
        sentence = self.sentences[place]
        rules, progress = sentence.request.constraints, sentence.progress[row]
        assert rules is not None
        distances_W = rules.step(progress).distances_W
        left = int(self.limits_B[place] - self.lengths_B[place]) - 1  # for what comes after this word
        distances_W = np.where(distances_W <= left, distances_W, UNREACHABLE)
        distances_W[end] = 0 if rules.distance(progress) == 0 else UNREACHABLE
        return distances_W

    def finish(self, place: int, group: int, row: int, total: float) -> None:
        """Add what stands in a row to the finished hypotheses; the total is log P, its end counted, with penalties."""
        sentence = self.sentences[place]
        length = int(self.lengths_B[place])
        score = total / (length + 1) ** self.settings.length_penalty
        log_probability = total
        if self.own_BN is not None and self.own_ends_BN is not None:
            log_probability = float(self.own_BN[place, row] + self.own_ends_BN[place, row])
        if self.coverage_BNS is not None:
            covered_S = np.minimum(self.coverage_BNS[place, row], 1.0)
            score += self.settings.coverage_penalty * float(np.log(covered_S[covered_S > 0.0]).sum())
        tokens = self.tokens_BNT[place, row, :length].tolist()
        finished = sentence.finished[group]
        found = Hypothesis(tokens, score, log_probability, cut=length >= sentence.request.limit)
        if self._text_of is None:
            finished.append(found)
            return
        # The same text split into other tokens is the same hypothesis: the best of them stands for all.
        text = self._text_of(tokens)
        same = [at for at, other in enumerate(finished) if self._text_of(other.tokens) == text]
        if not same:
            finished.append(found)
        elif finished[same[0]].score < score:
            finished[same[0]] = found

    def close_groups(self) -> list[int]:
        """End the groups that have all they need; give the places of the sentences that have no other left."""
        B, groups = len(self.sentences), self.settings.groups
        scores_BGM = self.scores_BN.reshape(B, groups, -1)
        best_BG = scores_BGM.max(2)
        for place, sentence in enumerate(self.sentences):
            for group, finished in enumerate(sentence.finished):
                if finished and self._has_enough(place, finished, float(best_BG[place, group])):
                    scores_BGM[place, group] = best_BG[place, group] = DEAD
        return np.flatnonzero((best_BG == DEAD).all(1)).tolist()

    def _has_enough(self, place: int, finished: list[Hypothesis], best: float) -> bool:
        """Whether a group has as many finished hypotheses as rows, or none that could still win."""
        settings = self.settings
        size = settings.rows // settings.groups
        rules = self.sentences[place].request.constraints
        # Where something is required, what ends first is often what it was forced into: the others are waited for.
        patient = rules is not None and rules.requires
        if settings.sample or (len(finished) >= size and not patient):
            return not settings.sample
        wanted = min(settings.n_best, size)
        # No token makes log P higher, and no length divides it by more than the limit does.
        length = int((self.lengths_B if settings.early_stop or patient else self.limits_B)[place])
        bound = best / (length + 1) ** settings.length_penalty
        return len(finished) >= wanted and sorted(found.score for found in finished)[-wanted] >= bound

    def result(self, place: int) -> list[Hypothesis]:
        """Return the finished hypotheses of a sentence, best first; of diverse groups, the best of each come first."""
        if not any(self.sentences[place].finished):
            raise ModelError("a sentence came to no end: nothing that may be written has a probability")
        groups = [sorted(group, key=lambda h: -h.score) for group in self.sentences[place].finished]
        if len(groups) == 1:
            return groups[0][: self.settings.n_best]
        by_rank = [h for rank in range(max(map(len, groups))) for h in _ranked(groups, rank)]
        return _distinct(by_rank, self._text_of or tuple)[: self.settings.n_best]


def _together(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Concatenate arrays that may differ in their last size, zeros where one of them has nothing."""
    size = max(one.shape[2], other.shape[2])
    wide = [x if x.shape[2] == size else np.pad(x, ((0, 0), (0, 0), (0, size - x.shape[2]))) for x in (one, other)]
    return np.concatenate(wide)


def _ranked(groups: list[list[Hypothesis]], rank: int) -> list[Hypothesis]:
    return sorted((group[rank] for group in groups if rank < len(group)), key=lambda h: -h.score)


def _distinct(hypotheses: list[Hypothesis], text_of: TextOf) -> list[Hypothesis]:
    """Leave out what another group has written too."""
    first: dict[Hashable, Hypothesis] = {}
    for hypothesis in hypotheses:
        first.setdefault(text_of(hypothesis.tokens), hypothesis)
    return list(first.values())
