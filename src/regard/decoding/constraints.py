"""Phrases that must come in a hypothesis, and phrases that must not."""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.decoding.phrases import UNREACHABLE, Bools, Kinds, PhraseAutomaton, as_kinds, token_phrase

State = tuple[int, ...]
"""A state of each required phrase and then of each forbidden one."""

_EXPLORED = 300  # states; beyond this, phrases are treated as independent


@dataclass(frozen=True)
class Step:
    """What each token would lead to."""

    distances_W: NDArray[np.int64]
    """The tokens that are then still needed; `UNREACHABLE` if a forbidden phrase has come."""
    hanging_W: Bools
    """Whether a forbidden phrase has come unless its last word goes on."""


class Constraints:
    """What must and must not come in one hypothesis.

    >>> rules = Constraints.of_tokens(10, required=[(7, 8)], forbidden=[(9,)])
    >>> begun = rules.after(rules.start, 7)
    >>> rules.distance(begun), rules.next_tokens(begun).tolist(), rules.after(begun, 9)
    (1, [8], None)
    """

    def __init__(self, required: Sequence[PhraseAutomaton] = (), forbidden: Sequence[PhraseAutomaton] = ()) -> None:
        self._required, self._forbidden = tuple(required), tuple(forbidden)
        self._all = (*self._required, *self._forbidden)
        self.start: State = (0,) * len(self._all)
        self._kinds_PU, self._kind_of_W = _common_kinds(self._all)
        self._after_U: dict[State, tuple[NDArray[np.int64], Bools]] = {}
        self._distances = self._explored() if self._required and self._forbidden else None

    @classmethod
    def of_tokens(
        cls, vocab_size: int, required: Sequence[Sequence[int]] = (), forbidden: Sequence[Sequence[int]] = ()
    ) -> "Constraints":
        """Return constraints on sequences of tokens; a phrase that is required twice must come twice."""
        return cls(
            [token_phrase(vocab_size, tokens, times) for tokens, times in Counter(map(tuple, required)).items()],
            [token_phrase(vocab_size, tokens) for tokens in forbidden],
        )

    @property
    def requires(self) -> bool:
        """Whether something must come."""
        return bool(self._required)

    def after(self, state: State, token: int) -> State | None:
        """Return the state after a token; None if a forbidden phrase has come with it."""
        parts = zip(self._all, state, strict=True)
        after = tuple(int(phrase.next_SU[part, phrase.kind_of_W[token]]) for phrase, part in parts)
        return None if self._has_forbidden(after) else after

    def step(self, state: State) -> Step:
        """Return what each token would lead to."""
        if state not in self._after_U:
            self._after_U[state] = self._after_kinds(self._next_PU(state))
        distances_U, hanging_U = self._after_U[state]
        return Step(distances_U[self._kind_of_W], hanging_U[self._kind_of_W])

    def next_tokens(self, state: State) -> NDArray[np.int64]:
        """Return the tokens that bring the end of all required phrases nearer."""
        return np.flatnonzero(self.step(state).distances_W < self.distance(state))

    def distance(self, state: State) -> int:
        """Return how many more tokens are needed, at the least, before the hypothesis may end."""
        if self._distances is not None:
            return self._distances.get(state, UNREACHABLE)
        return int(self._apart(np.array(state)[:, None])[0])

    def is_hanging(self, state: State) -> bool:
        """Whether a forbidden phrase has come unless its last word goes on."""
        parts = zip(self._forbidden, state[len(self._required) :], strict=True)
        return any(phrase.complete_S[part] for phrase, part in parts)

    def _has_forbidden(self, state: State) -> bool:
        parts = zip(self._forbidden, state[len(self._required) :], strict=True)
        return any(phrase.found_S[part] for phrase, part in parts)

    def useful_tokens(self) -> list[int]:
        """Return the tokens that required phrases are made of."""
        return sorted({token for phrase in self._required for token in phrase.useful_tokens()})

    def _next_PU(self, state: State) -> NDArray[np.int64]:
        rows = zip(self._all, state, self._kinds_PU, strict=True)
        return np.stack([phrase.next_SU[part, kinds_U] for phrase, part, kinds_U in rows]).astype(np.int64)

    def _after_kinds(self, states_PU: NDArray[np.int64]) -> tuple[NDArray[np.int64], Bools]:
        hanging_U = np.zeros(states_PU.shape[1], dtype=bool)
        for phrase, states_U in zip(self._forbidden, states_PU[len(self._required) :], strict=True):
            hanging_U |= phrase.complete_S[states_U] & ~phrase.found_S[states_U]
        if self._distances is None:
            return self._apart(states_PU), hanging_U
        distances = (self._distances.get(tuple(states), UNREACHABLE) for states in states_PU.T.tolist())
        return np.fromiter(distances, dtype=np.int64, count=states_PU.shape[1]), hanging_U

    def _apart(self, states_PU: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the distances of states if phrases come one after the other: of those begun, one is gone on with."""
        R = len(self._required)
        distances_U = np.zeros(states_PU.shape[1], dtype=np.int64)
        saved_U = np.zeros_like(distances_U)
        for phrase, states_U in zip(self._required, states_PU[:R], strict=True):
            whole_U = np.where(phrase.complete_S[states_U], 0, phrase.whole_distance)
            distances_U += whole_U
            saved_U = np.maximum(saved_U, whole_U - phrase.distance_S[states_U])
        distances_U -= saved_U
        for phrase, states_U in zip(self._forbidden, states_PU[R:], strict=True):
            distances_U = np.where(phrase.complete_S[states_U], np.maximum(distances_U, 1), distances_U)
            distances_U[phrase.found_S[states_U]] = UNREACHABLE
        return np.minimum(distances_U, UNREACHABLE)

    def _explored(self) -> dict[State, int] | None:
        """Return the distances of all states by trying all tokens, unless there are too many states."""
        before: dict[State, list[State]] = {self.start: []}
        waiting = deque([self.start])
        while waiting:
            state = waiting.popleft()
            for after in set(map(tuple, self._next_PU(state).T.tolist())):
                if self._has_forbidden(after):
                    continue
                if after not in before:
                    before[after] = []
                    waiting.append(after)
                before[after].append(state)
            if len(before) > _EXPLORED:
                return None
        ends = [state for state in before if self._may_end(state)]
        distances = dict.fromkeys(ends, 0)
        nearest = deque(ends)
        while nearest:
            state = nearest.popleft()
            for parent in before[state]:
                if parent not in distances:
                    distances[parent] = distances[state] + 1
                    nearest.append(parent)
        return distances

    def _may_end(self, state: State) -> bool:
        met = all(phrase.complete_S[part] for phrase, part in zip(self._required, state, strict=False))
        return met and not self.is_hanging(state)


def _common_kinds(phrases: Sequence[PhraseAutomaton]) -> tuple[NDArray[np.int64], Kinds]:
    """Return kinds of tokens that are alike to every phrase: each phrase's number of it, and the kind of tokens."""
    kind_of_W = phrases[0].kind_of_W.astype(np.int64)
    kinds_PU = np.arange(phrases[0].next_SU.shape[1])[None]
    for phrase in phrases[1:]:
        U = phrase.next_SU.shape[1]
        pairs_U, kind_of_W = np.unique(kind_of_W * U + phrase.kind_of_W, return_inverse=True)
        kinds_PU = np.concatenate([kinds_PU[:, pairs_U // U], pairs_U[None] % U])
    return kinds_PU, as_kinds(kind_of_W)
