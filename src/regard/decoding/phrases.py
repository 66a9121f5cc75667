"""Phrases as automata that read tokens, one for each phrase."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Ids = NDArray[np.int32]
Kinds = NDArray[np.unsignedinteger[Any]]

UNREACHABLE = 10**9
"""The distance to a phrase that no token leads to."""


@dataclass(frozen=True, eq=False)
class PhraseAutomaton:
    """Finds a phrase, some number of times, in a sequence of tokens. Its S states are numbered from 0, the start."""

    kind_of_W: Kinds
    """Tokens are of U kinds; those of one kind lead from any state to the same state."""
    next_SU: Ids
    found_S: Bools
    """Whether the phrase has come as often as it should."""
    complete_S: Bools
    """Whether it has if the text ends here."""
    distance_S: Ids
    """The tokens that are needed until it is complete."""
    whole_distance: int
    """The tokens that are needed for all of it, wherever it begins."""

    def useful_tokens(self) -> list[int]:
        """Return the tokens that bring the phrase nearer to being complete, from any state."""
        nearer_SU = self.distance_S[self.next_SU] < self.distance_S[:, None]
        nearer_U: Bools = np.any(nearer_SU, axis=0)
        return np.flatnonzero(nearer_U[self.kind_of_W]).tolist()


def as_kinds(kinds_W: NDArray[np.integer[Any]]) -> Kinds:
    """Return the kinds of all tokens in as few bytes as hold them: a thousand sentences may each have their own."""
    return kinds_W.astype(np.min_scalar_type(int(kinds_W.max())))


def token_phrase(vocab_size: int, tokens: Sequence[int], times: int = 1) -> PhraseAutomaton:
    """Return the automaton of a sequence of tokens (Knuth, Morris and Pratt, 1977).

    >>> automaton = token_phrase(10, [7, 8])
    >>> state = automaton.next_SU[0, automaton.kind_of_W[7]]
    >>> int(automaton.distance_S[0]), int(automaton.distance_S[state])
    (2, 1)
    """
    distinct = sorted(set(tokens))
    kinds_W = np.zeros(vocab_size, dtype=np.int32)
    kinds_W[distinct] = np.arange(1, len(distinct) + 1)
    kind_of_W = as_kinds(kinds_W)
    size = len(tokens)
    next_SU = np.zeros((size * times + 1, len(distinct) + 1), dtype=np.int32)
    for count in range(times):
        first = restart = count * size
        next_SU[first] = first
        for place, token in enumerate(tokens):
            state, kind = first + place, kind_of_W[token]
            if place:  # what does not fit goes on from the longest beginning that it ends with
                next_SU[state] = next_SU[restart]
                restart = int(next_SU[restart, kind])
            next_SU[state, kind] = state + 1
    next_SU[-1] = size * times
    distance_S = np.arange(size * times, -1, -1, dtype=np.int32)
    return PhraseAutomaton(kind_of_W, next_SU, distance_S == 0, distance_S == 0, distance_S, size * times)
