"""BPE-dropout: a random segmentation, keyed by (seed, epoch, example).

Where a merge applies, it is left out with some probability (Provilkov et al. 2020), so that a model sees a word in
pieces that the plain cut never makes. The tokenizers library has this too, but its draws cannot be seeded.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch

from regard.data.tokenizer import SPACE, Tokenizer
from regard.errors import InputError
from regard.ops.rng import random_words


class SubwordDropout:
    """Cuts token sequences of a BPE tokenizer again, with merges dropped at a rate."""

    def __init__(self, tokenizer: Tokenizer, rate: float, *, seed: int, cut: "Cut | None" = None) -> None:
        if tokenizer.kind != "bpe":
            raise InputError(f"subword dropout leaves out merges, and a {tokenizer.kind} tokenizer has none")
        if not 0.0 <= rate <= 1.0:
            raise InputError(f"the rate of subword dropout is {rate}; it must be from 0 to 1")
        self._rate, self._seed = rate, seed
        self._cut = cut_in_python if cut is None else cut
        self._table = MergeTable(tokenizer)

    def cut(self, numbers: Sequence[int], *, epoch: int, example: int) -> list[int]:
        """Cut a sequence again. Tokens that are not made by merges, bytes and special ones, stay as they are."""
        tokens = np.asarray(numbers, dtype=np.int64)
        strange = tokens[(tokens < 0) | (tokens >= len(self._table.kinds))]
        if len(strange):
            raise InputError(f"number {strange[0]} is not in the vocabulary of {len(self._table.kinds)}")
        start = hashlib.blake2b(f"{self._seed} {epoch} {example}".encode(), digest_size=8).digest()
        return self._cut(self._table, self._rate, tokens, int.from_bytes(start, "little", signed=True))


Numbers = npt.NDArray[np.int64]

_GOES_ON, _BEGINS, _STANDS_ALONE = range(3)


class MergeTable:
    """The merges of a tokenizer, in numbers."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokens = tokenizer.tokens
        numbers = {token: number for number, token in tokens.items()}
        letters: list[list[int]] = []
        kinds: list[int] = []
        for number in range(max(tokens) + 1):
            token = tokens.get(number)
            # A token that someone added may have letters that are no tokens; it stays as it is.
            alone = token is None or tokenizer.is_atomic(number) or not all(letter in numbers for letter in token)
            letters.append([] if token is None or alone else [numbers[letter] for letter in token])
            kinds.append(_STANDS_ALONE if token is None or alone else _BEGINS if token.startswith(SPACE) else _GOES_ON)
        self.kinds = np.array(kinds, dtype=np.uint8)
        self.letter_begins = np.cumsum([0, *map(len, letters)], dtype=np.int64)
        self.letters = np.array([number for some in letters for number in some], dtype=np.int64)
        self.merges = {
            (numbers[left], numbers[right]): (rank, numbers[left + right])
            for rank, (left, right) in enumerate(tokenizer.merges)
        }
        """When each pair was learned, and what it makes."""
        rows = sorted((left << 32 | right, *merge) for (left, right), merge in self.merges.items())
        self.pairs, self.ranks, self.whole = np.array(rows, dtype=np.int64).reshape(-1, 3).T.copy()

    def most_pieces(self, tokens: Numbers) -> int:
        """Return how many pieces a cut of these tokens can have at most, and then some."""
        return len(tokens) + int((self.letter_begins[tokens + 1] - self.letter_begins[tokens]).sum())

    def letters_of(self, number: int) -> list[int]:
        """Return the letters of a token."""
        first, last = self.letter_begins[number : number + 2]
        return self.letters[first:last].tolist()  # type: ignore[no-any-return]

    def merges_of(self, pieces: Sequence[int]) -> list[tuple[int, int, int]]:
        """Return the merges that apply, first learned first: when it was learned, where it is, what it makes."""
        places = ((at, self.merges.get(pair)) for at, pair in enumerate(pairwise(pieces)))
        return sorted((merge[0], at, merge[1]) for at, merge in places if merge is not None)


Cut = Callable[[MergeTable, float, Numbers, int], list[int]]
"""Cuts tokens again with merges dropped at a rate, from the random words that start at a number."""


def merge_logs(rate: float) -> tuple[float, float]:
    """Return the logarithms of the probabilities that a merge is left out, and that it is made."""
    return math.log(rate) if rate > 0.0 else -math.inf, math.log1p(-rate) if rate < 1.0 else -math.inf


def cut_in_python(table: MergeTable, rate: float, tokens: Numbers, start: int) -> list[int]:
    """Cut tokens again, in Python."""
    draws = _Draws(rate, start, 4 * table.most_pieces(tokens) + 1)
    again: list[int] = []
    word: list[int] = []
    for number in tokens.tolist():
        kind = table.kinds[number]
        if kind != _GOES_ON:
            again += _merged(table, word, draws)
            word = []
        if kind == _STANDS_ALONE:
            again.append(number)
        else:
            word += table.letters_of(number)
    return again + _merged(table, word, draws)


def _merged(table: MergeTable, letters: Sequence[int], draws: "_Draws") -> list[int]:
    """Merge letters: at each step the first-learned pair among those that the draw leaves, until it leaves none."""
    pieces = list(letters)
    while merges := table.merges_of(pieces):
        left_out = draws.left_out()
        if left_out >= len(merges):
            break
        _, at, whole = merges[left_out]
        pieces[at : at + 2] = [whole]
    return pieces


class _Draws:
    """How many merges are left out at each step before the one that is made: n with probability pⁿ · (1 - p).

    At a low rate it is nearly always none, so what is sampled is at how many steps that is so, and then how many are
    left out at the next: one sample for many steps.
    """

    def __init__(self, rate: float, start: int, count: int) -> None:
        """Count on so many draws: two for each piece that is merged, or is the last of its word."""
        self._words = iter(random_words(torch.tensor([start]), count)[0].tolist())
        self._log_of_leaving, self._log_of_making = merge_logs(rate)
        self._made = self._run(self._log_of_making)

    def left_out(self) -> int:
        if self._made > 0:
            self._made -= 1
            return 0
        self._made = self._run(self._log_of_making)
        return 1 + self._run(self._log_of_leaving)

    def _run(self, log_of_going_on: float) -> int:
        """Draw how often something happens that goes on with this probability each time."""
        if log_of_going_on == 0.0:
            return _ALWAYS
        uniform = (next(self._words) % 2**64 >> 11) * 2.0**-53
        return int(min(_ALWAYS, math.log(1.0 - uniform) / log_of_going_on))


_ALWAYS = 1 << 60
