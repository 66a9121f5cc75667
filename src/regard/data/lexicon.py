"""Translation lexicon: likely target tokens of each source token, learned by IBM model 1."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Pair = tuple[Sequence[int], Sequence[int]]

_ROUNDS = 4  # after which hardly anything changes its rank


class Lexicon(NamedTuple):
    """For each source token its likeliest target tokens, and the target tokens that are the most frequent of all."""

    likeliest_VK: Ints
    """Likeliest first; -1 where there are no more."""
    frequent_A: Ints


def learn_lexicon(pairs: Iterable[Pair], source_size: int, target_size: int, *, each: int, always: int) -> Lexicon:
    """Count how often tokens go together, each target token with one of its sentence's source tokens (IBM's model 1).

    p(t | s) is found by expectation and maximisation: every t of a sentence is shared among its s as p(t | s) stands,
    and p(t | s) is made of what s got. `each` is how many target tokens are kept of a source token.
    """
    source_L, target_L, word_L, frequency_W = _links(pairs, target_size)
    key_X, at_L = np.unique(source_L * target_size + target_L, return_inverse=True)
    source_X, target_X = key_X // target_size, key_X % target_size
    probability_X = np.ones(len(key_X))
    for _ in range(_ROUNDS):
        share_L = probability_X[at_L]
        share_L /= np.bincount(word_L, share_L)[word_L]
        count_X = np.bincount(at_L, share_L, minlength=len(key_X))
        probability_X = count_X / np.bincount(source_X, count_X, minlength=source_size)[source_X]
    order_X = np.lexsort((target_X, -probability_X, source_X))
    source_X, target_X = source_X[order_X], target_X[order_X]
    rank_X = np.arange(len(source_X)) - np.searchsorted(source_X, source_X)
    kept_X = rank_X < each
    likeliest_VK = np.full((source_size, each), -1, dtype=np.int64)
    likeliest_VK[source_X[kept_X], rank_X[kept_X]] = target_X[kept_X]
    frequent_A = np.argsort(-frequency_W, kind="stable")[:always]
    return Lexicon(likeliest_VK, frequent_A[frequency_W[frequent_A] > 0])


def _links(pairs: Iterable[Pair], target_size: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Return each way in which a target token could have come of a source token, and how frequent target tokens are.

    Of each link: its source token, its target token, and the number of the target token in the whole corpus.
    """
    sources, targets, words = [], [], []
    frequency_W = np.zeros(target_size, dtype=np.int64)
    count = 0
    for source, target in pairs:
        source_S, target_T = np.array(source, dtype=np.int64), np.array(target, dtype=np.int64)
        sources.append(np.tile(source_S, len(target_T)))
        targets.append(np.repeat(target_T, len(source_S)))
        words.append(np.repeat(np.arange(count, count + len(target_T)), len(source_S)))
        count += len(target_T)
        np.add.at(frequency_W, target_T, 1)
    empty: list[Ints] = [np.zeros(0, dtype=np.int64)]
    source_L, target_L, word_L = (np.concatenate(empty + part) for part in (sources, targets, words))
    return source_L, target_L, word_L, frequency_W
