"""BPE-dropout: another cut of the same words each time, drawn from (seed, epoch, example).

Where a merge applies, it is left out with some probability (Provilkov et al. 2020), so that a model sees a word in
pieces that the plain cut never makes. The tokenizers library has this too, but its draws cannot be seeded.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat

import numpy as np

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
        self._merged: dict[_Pieces, list[_Pieces]] = {}

    def cut(self, numbers: Sequence[int], *, epoch: int, example: int) -> list[int]:
        """Cut a sequence again. Tokens that are not made by merges, bytes and special ones, stay as they are."""
        skips = self._skips(epoch, example)
        again: list[int] = []
        word = ""
        for number in numbers:
            token = self._tokens[number]
            atomic = number in self._atomic
            if word and (atomic or token.startswith(SPACE)):
                again += self._cut_word(word, skips)
                word = ""
            if atomic:
                again.append(number)
            else:
                word += token
        return again + self._cut_word(word, skips)

    def _skips(self, epoch: int, example: int) -> Iterator[int]:
        """Draw, for one step after the other, how many merges are left out before the one that is made."""
        if self._rate in (0.0, 1.0):
            yield from repeat(0 if self._rate == 0.0 else _NEVER)
        random = np.random.default_rng(np.random.SeedSequence(entropy=self._seed, spawn_key=(epoch, example)))
        while True:
            # Each is left out with the same chance p, so n and more of them are with the chance pⁿ.
            yield from (np.log(1.0 - random.random(64)) / math.log(self._rate)).astype(np.int64).tolist()

    def _cut_word(self, word: str, skips: Iterator[int]) -> list[int]:
        """Merge letters: at each step the first-learned pair among those that the draw leaves, until it leaves none."""
        pieces = tuple(word)
        while successors := self._successors(pieces):
            skipped = next(skips)
            if skipped >= len(successors):
                break
            pieces = successors[skipped]
        return [self._numbers[piece] for piece in pieces]

    def _successors(self, pieces: _Pieces) -> list[_Pieces]:
        """Give what the merges that apply make of a word, first learned first. Words come again, so it is kept."""
        found = self._merged.get(pieces)
        if found is None:
            if len(self._merged) >= _MOST_KEPT:
                self._merged.clear()
            ranked = sorted((self._ranks[pair], at) for at, pair in enumerate(pairwise(pieces)) if pair in self._ranks)
            found = [(*pieces[:at], pieces[at] + pieces[at + 1], *pieces[at + 2 :]) for _, at in ranked]
            self._merged[pieces] = found
        return found


_NEVER = 1 << 30
_MOST_KEPT = 1 << 17  # some hundred megabytes
