"""Keys and values kept while decoding, so that a step computes its own position alone.

Every attention module makes its own cache. A cache holds rows, such as the beams of some sentences, and offers
`reorder(rows)`, `keep(rows)` and `admit(other)`. Lengths are kept on the host: no step waits for the device.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.devices import to_device
from regard.errors import InputError
from regard.ops import Causal, Mask
from regard.ops.masks import broadcast_to_scores

Rows = Sequence[int] | NDArray[np.int64] | Tensor
"""Numbers of rows; a tensor on a device is read back to the host."""


class KeyValue(NamedTuple):
    """The keys and values of a sequence, split into heads."""

    key_BGSK: Tensor
    value_BGSV: Tensor


class Past(NamedTuple):
    """What new positions attend to: all keys and values there are, and which of them they may attend to."""

    key_value: KeyValue
    mask: Mask
    key_index: Tensor | None = None
    """Where the keys stand in their sequence, (S) or (B, S); None where they are all from the first one on."""


class PastCache(ABC):
    """What self-attention keeps of the positions so far, each row with a length of its own.

    Rows are independent: they may take in different numbers of positions, be reordered, repeated or dropped. What
    is kept carries no gradient.
    """

    def __init__(self) -> None:
        self._lengths: NDArray[np.int64] | None = None
        self._counts: NDArray[np.int64] | None = None

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many positions each row has taken in."""
        if self._lengths is None:
            raise InputError("the cache is empty: it has no rows before the first positions are appended")
        return self._lengths

    @property
    def offset(self) -> int | NDArray[np.int64]:
        """The position that comes next: one number where all rows agree, else one for each row."""
        if self._lengths is None or not len(self._lengths):
            return 0
        return int(self._lengths[0]) if self._is_even() else self._lengths

    def expect(self, B: int, T: int, counts: Rows | None = None) -> None:
        """Check that T positions of B rows can be appended next.

        `counts` says how many of them are real in each row; the others are padding on the right, attended to by none of
        the real ones and forgotten.
        """
        self._check(B, T, counts)
        self._counts = None if counts is None else on_host(counts)

    def _check(self, B: int, T: int, counts: Rows | None = None) -> None:
        if self._lengths is not None and len(self._lengths) != B:
            raise InputError(f"the cache holds {len(self._lengths)} rows and was given {B} new ones")
        if counts is None:
            return
        found = np.asarray(counts.tolist() if isinstance(counts, Tensor) else counts)
        if found.dtype.kind not in "iu" or found.shape != (B,):
            got = f"{counts.dtype} of shape {tuple(counts.shape)}" if isinstance(counts, Tensor) else counts
            raise InputError(f"lengths are integers of shape ({B},), one a row; got {got}")
        for row, count in enumerate(found.tolist()):
            if not 0 <= count <= T:
                raise InputError(f"row {row} is said to have {count} real positions, of the {T} it was given")

    def _advance(self, B: int, T: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Take in T positions of B rows, or those of them that are expected; return the lengths before, and counts."""
        self._check(B, T, self._counts)
        before = np.zeros(B, dtype=np.int64) if self._lengths is None else self._lengths
        counts = np.full(B, T, dtype=np.int64) if self._counts is None else self._counts
        self._lengths, self._counts = before + counts, None
        return before, counts

    @contextmanager
    def unless_refused(self) -> Iterator[None]:
        """Undo the appends of this block if it raises."""
        before = dict(vars(self))  # what lies behind the lengths is overwritten by what is appended next
        done = False
        try:
            yield
            done = True
        finally:
            if not done:
                vars(self).update(before)

    def reorder(self, rows: Rows) -> None:
        """Continue each row from another one."""
        self.keep(rows)

    @abstractmethod
    def keep(self, rows: Rows) -> None:
        """Keep these rows, in this order."""

    @abstractmethod
    def admit(self, other: Self) -> None:
        """Take in the rows of another cache, behind those that are there."""

    def expand(self, beams: int) -> None:
        """Repeat each row so many times."""
        if self._lengths is not None:
            self.keep(np.repeat(np.arange(len(self._lengths)), beams))

    def _is_even(self) -> bool:
        return self._lengths is None or not len(self._lengths) or bool((self._lengths == self._lengths[0]).all())


class AppendCache(PastCache):
    """A cache of keys and values that attention reads as they are."""

    @abstractmethod
    def append(self, new: KeyValue) -> Past:
        """Append new positions; return all that the new queries may attend to."""


class KeyValueCache(AppendCache):
    """The keys and values of all positions so far."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: KeyValue | None = None

    def append(self, new: KeyValue) -> Past:
        """Append new positions to the old; return all there are, and which of them the new queries may attend to."""
        B, _, T, _ = new.key_BGSK.shape
        even = self._is_even()
        before, _ = self._advance(B, T)
        S = T + (int(before.max()) if B else 0)
        kept = self._with_room_for(S, new)
        mask: Mask
        if even:
            for place, x_BGTK in zip(kept, new, strict=True):
                place[:, :, S - T : S] = x_BGTK.detach()
            mask = Causal()
        else:
            start_B = to_device(torch.from_numpy(before), new.key_BGSK.device)
            row_B1 = torch.arange(B, device=start_B.device)[:, None]
            at_BT = start_B[:, None] + torch.arange(T, device=start_B.device)
            for place, x_BGTK in zip(kept, new, strict=True):
                place[row_B1, :, at_BT] = x_BGTK.detach().transpose(1, 2)
            mask = Causal(start_B)
        self._kept = kept
        return Past(KeyValue(kept.key_BGSK[:, :, :S], kept.value_BGSV[:, :, :S]), mask)

    def keep(self, rows: Rows) -> None:
        """Keep these rows, in this order."""
        if self._kept is None:
            return
        host = on_host(rows)
        index = _index(host, self._kept.key_BGSK.device)
        self._lengths = self.lengths[host]
        S = int(self._lengths.max()) if len(host) else 0
        self._kept = KeyValue(*(_selected(x, index, S) for x in self._kept))

    def admit(self, other: Self) -> None:
        """Take in the rows of another cache, behind those that are there."""
        if other._kept is None:
            return
        if self._kept is None:
            self._kept, self._lengths = other._kept, other._lengths
            return
        self._kept = KeyValue(*map(_joined, self._kept, other._kept))
        self._lengths = np.concatenate([self.lengths, other.lengths])

    def _with_room_for(self, S: int, new: KeyValue) -> KeyValue:
        # Zeros rather than whatever memory holds: a weight of 0 on a NaN is a NaN.
        space = 0 if self._kept is None else self._kept.key_BGSK.size(2)
        if self._kept is not None and space >= S:
            return self._kept
        key, value = (x.new_zeros(*x.shape[:2], self._room(S, space), x.size(3)) for x in new)
        if self._kept is not None:
            key[:, :, :space] = self._kept.key_BGSK
            value[:, :, :space] = self._kept.value_BGSV
        return KeyValue(key, value)

    def _room(self, S: int, space: int) -> int:
        """Return for how many positions to make room where S are needed: more than that, so that it is rarely done."""
        return max(S, 2 * space, 16)


class SourceCache:
    """The keys and values of the source for cross-attention: once for each sentence, whatever its number of beams."""

    def __init__(self, key_value: KeyValue, mask: Tensor | None, beams: int = 1) -> None:
        self.key_value, self.mask, self.beams = key_value, mask, beams
        """The mask is (B, 1, 1, S), True = may attend; the rows of a sentence's beams stand next to one another."""

    def fold(self, query_RTD: Tensor) -> Tensor:
        """Return the queries of all beams of a sentence as one row: (B, N · T, D)."""
        R, T, D = query_RTD.shape
        if self.sentences * self.beams != R:
            raise InputError(f"the cache was started with {self.sentences} sources and was given {R} rows")
        return query_RTD.reshape(self.sentences, self.beams * T, D)

    def fold_scores(self, x: Tensor, name: str, heads: int, T: int) -> Tensor:
        """Return a mask or a bias for the scores (R, H, T, S) as one for those of folded queries, (B, H, N · T, S)."""
        B, N, S = self.sentences, self.beams, self.key_value.key_BGSK.size(2)
        x4 = broadcast_to_scores(x, name, (B * N, heads, T, S), 4, self.key_value.key_BGSK.device)
        if N == 1:
            return x4
        x4 = x4.expand(B * N, -1, T, -1)
        return x4.reshape(B, N, *x4.shape[1:]).transpose(1, 2).flatten(2, 3)

    @property
    def sentences(self) -> int:
        """How many sources there are."""
        return self.key_value.key_BGSK.size(0)

    def reorder(self, rows: Rows) -> None:
        """Continue each row from another one of its sentence: the source is the same for both."""
        if self.beams == 1:
            self.keep(rows)

    def keep(self, rows: Rows) -> None:
        """Keep these rows, in this order: all beams of some sentences."""
        index = _index(on_host(rows)[:: self.beams] // self.beams, self.key_value.key_BGSK.device)
        self.key_value = KeyValue(*(x.index_select(0, index) for x in self.key_value))
        self.mask = None if self.mask is None else self.mask.index_select(0, index)

    def admit(self, other: "SourceCache") -> None:
        """Take in the sources of another cache, behind those that are there."""
        masks = [
            cache.key_value.key_BGSK.new_ones(cache.sentences, 1, 1, cache.key_value.key_BGSK.size(2), dtype=torch.bool)
            if cache.mask is None
            else cache.mask
            for cache in (self, other)
        ]
        self.key_value = KeyValue(*map(_joined, self.key_value, other.key_value))
        self.mask = _joined(*(mask.transpose(2, 3) for mask in masks)).transpose(2, 3)


class DecoderCache:
    """What a decoder keeps between steps: a cache of each attention module, all of the same rows."""

    def __init__(self, layers: Sequence["DecoderLayerCache"]) -> None:
        self.layers = layers
        self.copied: SourceCache | None = None
        """The source for an output that copies from it."""

    @property
    def past(self) -> PastCache:
        """The first layer's past, whose lengths are every layer's."""
        return self.layers[0].past

    def expect(self, B: int, T: int, counts: Rows | None = None) -> None:
        """Check that T positions of B rows can be decoded next, `counts` of them real."""
        source = self.layers[0].source
        if source is not None and source.sentences * source.beams != B:
            raise InputError(f"the cache was started with {source.sentences} sources and was given {B} rows")
        for layer in self.layers:
            layer.past.expect(B, T, counts)

    def reorder(self, rows: Rows) -> None:
        """Continue each row from another one of its sentence."""
        for layer in self.layers:
            layer.reorder(rows)
        if self.copied is not None:
            self.copied.reorder(rows)

    def keep(self, rows: Rows) -> None:
        """Keep these rows, in this order: a subset of the sentences, or the survivors of a search with one beam."""
        for layer in self.layers:
            layer.keep(rows)
        if self.copied is not None:
            self.copied.keep(rows)

    def admit(self, other: "DecoderCache") -> None:
        """Take in the rows of another cache of the same decoder, behind those that are there."""
        for mine, theirs in zip(self.layers, other.layers, strict=True):
            mine.admit(theirs)
        if self.copied is not None and other.copied is not None:
            self.copied.admit(other.copied)

    def expand(self, beams: int) -> None:
        """Repeat each row for so many beams, which then stand next to one another."""
        for layer in self.layers:
            layer.expand(beams)
        if self.copied is not None:
            self.copied.beams *= beams


class DecoderLayerCache:
    """What one decoder layer keeps between steps: its own past, and the source."""

    def __init__(self, past: PastCache, source: SourceCache | None = None) -> None:
        self.past, self.source = past, source

    def reorder(self, rows: Rows) -> None:
        """Continue each row from another one of its sentence."""
        self.past.reorder(rows)
        if self.source is not None:
            self.source.reorder(rows)

    def keep(self, rows: Rows) -> None:
        """Keep these rows, in this order."""
        self.past.keep(rows)
        if self.source is not None:
            self.source.keep(rows)

    def admit(self, other: "DecoderLayerCache") -> None:
        """Take in the rows of another cache, behind those that are there."""
        self.past.admit(other.past)
        if self.source is not None and other.source is not None:
            self.source.admit(other.source)

    def expand(self, beams: int) -> None:
        """Repeat each row for so many beams."""
        self.past.expand(beams)
        if self.source is not None:
            self.source.beams *= beams


def on_host(rows: Rows) -> NDArray[np.int64]:
    """Return numbers of rows, or one for each row, as an array."""
    return np.asarray(rows.tolist() if isinstance(rows, Tensor) else rows, dtype=np.int64)


def _index(rows: NDArray[np.int64], device: torch.device) -> Tensor:
    return to_device(torch.from_numpy(rows), device)


def _selected(x_BGCK: Tensor, index: Tensor, S: int) -> Tensor:
    """Return some rows, with the positions that they hold and space for as many more as there was."""
    selected = x_BGCK.new_zeros(index.size(0), *x_BGCK.shape[1:])
    selected[:, :, :S] = x_BGCK[:, :, :S].index_select(0, index)
    return selected


def _joined(one_BGSK: Tensor, other_BGSK: Tensor) -> Tensor:
    """Return both behind one another, the shorter one padded with zeros in its positions."""
    S = max(one_BGSK.size(2), other_BGSK.size(2))
    B = one_BGSK.size(0) + other_BGSK.size(0)
    joined = one_BGSK.new_zeros(B, one_BGSK.size(1), S, one_BGSK.size(3))
    joined[: one_BGSK.size(0), :, : one_BGSK.size(2)] = one_BGSK
    joined[one_BGSK.size(0) :, :, : other_BGSK.size(2)] = other_BGSK
    return joined
