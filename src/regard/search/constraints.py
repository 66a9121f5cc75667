"""Phrases that must come, and phrases that must not, as one small automaton."""

from collections import deque
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

from regard.search.settings import Phrase

OTHER = -1  # any token that no phrase mentions
NEVER = 10**9


class Progress(NamedTuple):
    """How far a hypothesis is with its constraints."""

    met: int
    """A bit for each required phrase that has come."""
    begun: Phrase
    """The last tokens that begin a required phrase which has not come."""
    tail: Phrase
    """The last tokens that begin a forbidden phrase."""


class Constraints:
    """What must and must not come in one sentence.

    >>> rules = Constraints(required=((7, 8),), forbidden=((9,),))
    >>> begun = rules.after(rules.start, 7)
    >>> rules.distance(begun), rules.next_tokens(begun), rules.after(begun, 9)
    (1, [8], None)
    """

    def __init__(self, required: tuple[Phrase, ...] = (), forbidden: tuple[Phrase, ...] = ()) -> None:
        self.required, self.forbidden = required, forbidden
        self.start = Progress(0, (), ())
        self._mentioned = {token for phrase in (*required, *forbidden) for token in phrase}
        self._distances: dict[Progress, int] = {}

    @cached_property
    def _all_met(self) -> int:
        return (1 << len(self.required)) - 1

    def after(self, progress: Progress, token: int) -> Progress | None:
        """Give the progress once this token has come; nothing if it must not."""
        token = token if token in self._mentioned else OTHER
        history = (*progress.tail, token)
        if any(history[-len(phrase) :] == phrase for phrase in self.forbidden):
            return None
        tail = _longest_beginning(history, self.forbidden)
        unmet = [phrase for index, phrase in enumerate(self.required) if not progress.met >> index & 1]
        begun = _longest_beginning((*progress.begun, token), unmet)
        if begun in unmet:
            index = next(i for i, p in enumerate(self.required) if p == begun and not progress.met >> i & 1)
            return Progress(progress.met | 1 << index, (), tail)
        return Progress(progress.met, begun, tail)

    def banned(self, progress: Progress) -> list[int]:
        """Name the tokens that would complete a forbidden phrase."""
        return [p[-1] for p in self.forbidden if progress.tail[len(progress.tail) - len(p) + 1 :] == p[:-1]]

    def next_tokens(self, progress: Progress) -> list[int]:
        """Name the tokens that bring the end of all required phrases nearer."""
        left = self.distance(progress)
        if left == 0:
            return []
        tokens = sorted(self._mentioned)
        children = ((token, self.after(progress, token)) for token in tokens)
        return [token for token, child in children if child is not None and self.distance(child) < left]

    def distance(self, progress: Progress) -> int:
        """Say how many more tokens are needed until all required phrases have come, at the least."""
        if not self.forbidden:
            return self._tokens_left(progress)
        if progress not in self._distances:
            self._distances[progress] = self._searched(progress)
        return self._distances[progress]

    def tokens_met(self, progress: Progress) -> int:
        """Say how many tokens of required phrases have come."""
        return sum(map(len, self.required)) - self._tokens_left(progress)

    def _tokens_left(self, progress: Progress) -> int:
        missing = sum(len(phrase) for index, phrase in enumerate(self.required) if not progress.met >> index & 1)
        return missing - len(progress.begun)

    def _searched(self, progress: Progress) -> int:
        """Find the shortest way, breadth first: what is forbidden may be in the straight one."""
        seen, waiting = {progress}, deque([(progress, 0)])
        while waiting:
            state, steps = waiting.popleft()
            if state.met == self._all_met:
                return steps
            for token in (*sorted(self._mentioned), OTHER):
                child = self.after(state, token)
                if child is not None and child not in seen:
                    seen.add(child)
                    waiting.append((child, steps + 1))
        return NEVER


def _longest_beginning(tokens: Phrase, phrases: Iterable[Phrase]) -> Phrase:
    """Give the longest end of some tokens that a phrase begins with."""
    for first in range(len(tokens)):
        if any(phrase[: len(tokens) - first] == tokens[first:] for phrase in phrases):
            return tokens[first:]
    return ()
