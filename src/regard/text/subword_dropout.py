"""BPE-dropout: another cut of the same words each time, drawn from (seed, epoch, example).

Where a merge applies, it is left out with some probability (Provilkov et al. 2020), so that a model sees a word in
pieces that the plain cut never makes. The tokenizers library has this too, but its draws cannot be seeded.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import TypeVar

from regard.errors import InputError
from regard.text.tokenizer import SPACE, Tokenizer

_Pieces = tuple[str, ...]


class SubwordDropout:
    """Cuts token sequences of a BPE tokenizer again, with merges dropped at a rate."""

    def __init__(self, tokenizer: Tokenizer, rate: float, *, seed: int) -> None:
        if tokenizer.kind != "bpe":
            raise InputError(f"subword dropout leaves out merges, and a {tokenizer.kind} tokenizer has none")
        if not 0.0 <= rate <= 1.0:
            raise InputError(f"the rate of subword dropout is {rate}; it must be from 0 to 1")
        self._rate, self._seed = rate, seed
        self._ranks = {pair: rank for rank, pair in enumerate(tokenizer.merges)}
        self._tokens = [tokenizer.token(number) for number in range(tokenizer.vocab_size)]
        self._numbers = {token: number for number, token in enumerate(self._tokens)}
        self._atomic = {number for number in range(tokenizer.vocab_size) if tokenizer.is_atomic(number)}
        self._plain: dict[str, tuple[list[int], int]] = {}
        self._merged: dict[_Pieces, list[_Pieces]] = {}

    def cut(self, numbers: Sequence[int], *, epoch: int, example: int) -> list[int]:
        """Cut a sequence again. Tokens that are not made by merges, bytes and special ones, stay as they are."""
        draws = _Draws(self._rate, f"{self._seed} {epoch} {example}")
        again: list[int] = []
        word = ""
        for number in numbers:
            token = self._tokens[number]
            atomic = number in self._atomic
            if word and (atomic or token.startswith(SPACE)):
                again += self._cut_word(word, draws)
                word = ""
            if atomic:
                again.append(number)
            else:
                word += token
        return again + self._cut_word(word, draws)

    def _cut_word(self, word: str, draws: "_Draws") -> list[int]:
        plain, merges = self._plain_cut(word)
        if merges <= draws.made:  # most words are not changed at all
            draws.made -= merges
            return plain
        return self._numbers_of(self._merge(word, draws)[0])

    def _plain_cut(self, word: str) -> tuple[list[int], int]:
        """Cut a word with all merges, and say how many there are."""
        found = self._plain.get(word)
        if found is None:
            pieces, merges = self._merge(word, _Draws(0.0, ""))
            found = _kept(self._plain, word, (self._numbers_of(pieces), merges))
        return found

    def _numbers_of(self, pieces: _Pieces) -> list[int]:
        return [self._numbers[piece] for piece in pieces]

    def _merge(self, word: str, draws: "_Draws") -> tuple[_Pieces, int]:
        """Merge letters: at each step the first-learned pair among those that the draw leaves, until it leaves none."""
        pieces, merges = tuple(word), 0
        while successors := self._successors(pieces):
            left_out = draws.left_out()
            if left_out >= len(successors):
                break
            pieces, merges = successors[left_out], merges + 1
        return pieces, merges

    def _successors(self, pieces: _Pieces) -> list[_Pieces]:
        """Give what the merges that apply make of a word, first learned first."""
        found = self._merged.get(pieces)
        if found is None:
            ranked = sorted((self._ranks[pair], at) for at, pair in enumerate(pairwise(pieces)) if pair in self._ranks)
            made = [(*pieces[:at], pieces[at] + pieces[at + 1], *pieces[at + 2 :]) for _, at in ranked]
            found = _kept(self._merged, pieces, made)
        return found


class _Draws:
    """How many merges are left out at each step before the one that is made: n with the chance pⁿ · (1 - p)."""

    def __init__(self, rate: float, key: str) -> None:
        self._random = Random(key)
        self._log_of_leaving = math.log(rate) if rate > 0.0 else -math.inf
        self._log_of_making = math.log1p(-rate) if rate < 1.0 else -math.inf
        self.made = self._run(self._log_of_making)
        """At how many steps from here on none is left out."""

    def left_out(self) -> int:
        if self.made > 0:
            self.made -= 1
            return 0
        self.made = self._run(self._log_of_making)
        return 1 + self._run(self._log_of_leaving)

    def _run(self, log_of_going_on: float) -> int:
        """Draw how often something happens that goes on with this chance each time."""
        if log_of_going_on == 0.0:
            return _ALWAYS
        return int(math.log(1.0 - self._random.random()) / log_of_going_on)


_ALWAYS = 1 << 60
_MOST_KEPT = 1 << 17  # some hundred megabytes

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _kept(known: dict[_Key, _Value], key: _Key, value: _Value) -> _Value:
    """Keep what was found out, since words come again; where there is too much, begin anew."""
    if len(known) >= _MOST_KEPT:
        known.clear()
    known[key] = value
    return value
