"""BPE-dropout: another cut of the same words each time, drawn from (seed, epoch, example).

Where a merge applies, it is left out with some probability (Provilkov et al. 2020), so that a model sees a word in
pieces that the plain cut never makes. The tokenizers library has this too, but its draws cannot be seeded.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from regard.errors import InputError
from regard.text.tokenizer import SPACE, Tokenizer


class SubwordDropout:
    """Cuts token sequences of a BPE tokenizer again, with merges dropped at a rate."""

    def __init__(self, tokenizer: Tokenizer, rate: float, *, seed: int) -> None:
        if tokenizer.kind != "bpe":
            raise InputError(f"subword dropout leaves out merges, and a {tokenizer.kind} tokenizer has none")
        if not 0.0 <= rate <= 1.0:
            raise InputError(f"the rate of subword dropout is {rate}; it must be from 0 to 1")
        self._tokenizer, self._rate, self._seed = tokenizer, rate, seed
        self._ranks = {pair: rank for rank, pair in enumerate(tokenizer.merges)}

    def cut(self, numbers: Sequence[int], *, epoch: int, example: int) -> list[int]:
        """Cut a sequence again. Tokens that are not made by merges, bytes and special ones, stay as they are."""
        random = np.random.default_rng(np.random.SeedSequence(entropy=self._seed, spawn_key=(epoch, example)))
        again: list[int] = []
        word: list[str] = []
        for number in numbers:
            token = self._tokenizer.token(int(number))
            atomic = self._tokenizer.is_atomic(int(number))
            if atomic or token.startswith(SPACE):
                again += self._merged(word, random)
                word = []
            if atomic:
                again.append(int(number))
            else:
                word += token
        return again + self._merged(word, random)

    def _merged(self, pieces: list[str], random: np.random.Generator) -> list[int]:
        """Merge letters: at each step the first-learned pair among those that the draw leaves."""
        pieces = list(pieces)
        while len(pieces) > 1:
            ranked = [(self._ranks.get(pair), at) for at, pair in enumerate(pairwise(pieces))]
            found = [(rank, at) for rank, at in ranked if rank is not None]
            kept = random.random(len(found)) >= self._rate
            left = [candidate for candidate, keep in zip(found, kept, strict=True) if keep]
            if not left:
                break
            _, at = min(left)
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
        return [self._tokenizer.number(piece) for piece in pieces]
