"""A phrase of a text as an automaton: it is found however the vocabulary splits that text into tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.decoding.phrases import UNREACHABLE, Bools, Ids, PhraseAutomaton, as_kinds

Symbols = tuple[int, ...]
_NONE = -1  # pads the spelling of short tokens


class Spelling:
    """The symbols that each token of a vocabulary stands for: characters, or bytes of them.

    `joins` tells of a symbol whether it is part of a word, so that a word goes on with it; None if that is as it was
    with the symbol before. `needs_space` tells whether a space is written between it and a word after it.
    """

    def __init__(
        self,
        tokens: Sequence[Symbols],
        joins: Callable[[int], bool | None],
        needs_space: Callable[[int], bool] = lambda symbol: False,
    ) -> None:
        symbols_WX = np.full((len(tokens), max(1, *map(len, tokens))), _NONE, dtype=np.int64)
        for number, symbols in enumerate(tokens):
            symbols_WX[number, : len(symbols)] = symbols
        self.symbols, places = np.unique(symbols_WX, return_inverse=True)
        self.places_WX: NDArray[np.int64] = places.reshape(symbols_WX.shape)
        """For each token the places of its symbols among all symbols."""
        self.joins, self.needs_space = joins, needs_space


@dataclass(frozen=True)
class Phrase:
    """What is looked for: at each place one of some sequences of symbols, and words begin and end with all of it."""

    places: tuple[frozenset[Symbols], ...]
    splits: tuple[tuple[int, ...], ...] = ()
    """The tokens that the vocabulary itself has for it; in others a model would hardly write it."""
    spaced: bool = False
    """Whether a word of it that follows a comma or a full stop counts only with a space between them."""


def text_phrase(spelling: Spelling, phrase: Phrase, times: int = 1) -> PhraseAutomaton:
    """Return the automaton of a phrase of a text."""
    symbols = _SymbolAutomaton(spelling, phrase, times)
    kinds_UX, kinds = np.unique(symbols.classes[spelling.places_WX], axis=0, return_inverse=True)
    kind_of_W = as_kinds(kinds.reshape(-1))
    next_SU, states = _explored(symbols, kinds_UX)
    found_S = np.array([count == times for count, _, _ in states])
    complete_S = found_S | np.array([count + 1 == times and symbols.final in nodes for count, nodes, _ in states])
    unbegun = [state for state, (count, nodes, _) in enumerate(states) if count == 0 and not nodes]
    distance_S = _distances(next_SU, complete_S)
    if phrase.splits:
        begins = [state for state, (_, nodes, _) in enumerate(states) if not nodes]
        usual = _usual_kinds(next_SU, [[int(kind_of_W[token]) for token in split] for split in phrase.splits], begins)
        usual_S = _distances(next_SU, complete_S, usual)
        distance_S = usual_S if usual_S[0] < UNREACHABLE else distance_S
    whole_distance = int(distance_S[unbegun].max())
    return PhraseAutomaton(kind_of_W, next_SU, found_S, complete_S, distance_S, whole_distance)


State = tuple[int, frozenset[int], bool]
"""How often the phrase was found, the nodes that a further occurrence has reached, whether no word begins here."""


class _SymbolAutomaton:
    """The automaton over single symbols. Those outside the phrase differ only in whether they join."""

    def __init__(self, spelling: Spelling, phrase: Phrase, times: int) -> None:
        self.final, self._times = len(phrase.places), times
        self._edges, symbols = _edges(phrase)
        # A word must not go on before or after the phrase, unless it begins or ends with a sign.
        ends = [[spelling.joins(option[end]) for option in phrase.places[end]] for end in (0, -1)]
        self._left, self._right = map(any, ends)
        class_of = {symbol: number for number, symbol in enumerate(symbols)}

        def kind(symbol: int) -> tuple[bool | None, bool]:
            return spelling.joins(symbol), phrase.spaced and spelling.needs_space(symbol)

        others = [(False, False), (True, False), (None, False), (False, True)]
        self._kinds = [*map(kind, symbols), *others]
        none = len(self._kinds)
        self.classes: NDArray[np.int64] = np.array(
            [
                none if symbol == _NONE else class_of.get(symbol, len(symbols) + others.index(kind(symbol)))
                for symbol in spelling.symbols.tolist()
            ]
        )
        """The class of each symbol of the spelling; the last stands for no symbol."""
        self.numbers: dict[State, int] = {}
        self._rows: list[list[int]] = []
        self.number((0, frozenset(), False))

    def number(self, state: State) -> int:
        """Return the number of a state, a new one if it is new."""
        if state not in self.numbers:
            self.numbers[state] = len(self._rows)
            self._rows.append([])
        return self.numbers[state]

    def table(self, states: Sequence[int]) -> Ids:
        """Return the states after each class of symbols, with rows for these states at least."""
        known = list(self.numbers)
        for number in states:
            if not self._rows[number]:
                row = [self.number(self._after(known[number], symbol)) for symbol in range(len(self._kinds))]
                self._rows[number] = [*row, number]
        return np.array([row or [_NONE] * (len(self._kinds) + 1) for row in self._rows], dtype=np.int32)

    def _after(self, state: State, symbol: int) -> State:
        """Return the state after a symbol of a class."""
        count, nodes, joined = state
        if count == self._times:
            return state
        joins, needs_space = self._kinds[symbol]
        joins = joined if joins is None else joins
        if self.final in nodes and not joins:  # the word has ended with the phrase
            count, nodes = count + 1, frozenset()
        begins = frozenset() if self._left and joined else frozenset({0})
        after = frozenset(node for start in nodes | begins for node in self._edges.get((start, symbol), ()))
        if self.final in after and not self._right:
            count, after = count + 1, frozenset()
        return (self._times, frozenset(), False) if count == self._times else (count, after, joins or needs_space)


def _edges(phrase: Phrase) -> tuple[dict[tuple[int, int], set[int]], list[int]]:
    """Return the nodes that each node and class of symbols lead to, and the symbols of the classes."""
    symbols = sorted({symbol for options in phrase.places for option in options for symbol in option})
    class_of = {symbol: number for number, symbol in enumerate(symbols)}
    edges: dict[tuple[int, int], set[int]] = {}
    fresh = len(phrase.places) + 1
    for place, options in enumerate(phrase.places):
        for option in sorted(options):
            path = [place, *range(fresh, fresh + len(option) - 1), place + 1]
            fresh += len(option) - 1
            for node, following, symbol in zip(path, path[1:], option, strict=False):
                edges.setdefault((node, class_of[symbol]), set()).add(following)
    return edges, symbols


def _explored(symbols: _SymbolAutomaton, kinds_UX: NDArray[np.int64]) -> tuple[Ids, list[State]]:
    """Return the states that tokens lead to, and the state after each kind of token from each of them."""
    rows: dict[int, Ids] = {}
    waiting = [0]
    while waiting:
        state = waiting.pop()
        if state in rows:
            continue
        states_U = np.full(len(kinds_UX), state, dtype=np.int32)
        for classes_U in kinds_UX.T:
            states_U = symbols.table(np.unique(states_U).tolist())[states_U, classes_U]
        rows[state] = states_U
        waiting += np.unique(states_U).tolist()
    reached = sorted(rows)  # the start first
    renumbered = np.full(len(symbols.numbers), _NONE, dtype=np.int32)
    renumbered[reached] = np.arange(len(reached))
    known = list(symbols.numbers)
    return renumbered[np.stack([rows[state] for state in reached])], [known[state] for state in reached]


def _distances(next_SU: Ids, complete_S: Bools, kinds: Sequence[Sequence[int]] | None = None) -> Ids:
    """Return the least number of tokens from each state to one that is complete.

    With `kinds` for each state, only these count, and those that complete the phrase by themselves.
    """
    distance_S = np.where(complete_S, 0, UNREACHABLE).astype(np.int32)
    usable_SU = np.ones(next_SU.shape, dtype=bool)
    if kinds is not None:
        usable_SU = complete_S[next_SU]
        for state, some in enumerate(kinds):
            usable_SU[state, list(some)] = True
    while True:
        after_SU = np.where(usable_SU, distance_S[next_SU], UNREACHABLE)
        nearer_S = np.minimum(distance_S, np.minimum(after_SU.min(1), UNREACHABLE - 1) + 1)
        if (nearer_S == distance_S).all():
            return distance_S
        distance_S = nearer_S


def _usual_kinds(next_SU: Ids, splits: Sequence[Sequence[int]], begins: Sequence[int]) -> list[list[int]]:
    """Return for each state how the splits begin, and how one that is begun there goes on."""
    usual = [[split[0] for split in splits] for _ in next_SU]
    for split in splits:
        for state in begins:
            for kind in split:
                usual[state].append(kind)
                state = int(next_SU[state, kind])
    return usual
