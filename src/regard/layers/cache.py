"""Keys and values kept while decoding, so that a step computes its own position alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from regard.errors import InputError
from regard.ops import Causal, Mask


class KeyValue(NamedTuple):
    """The keys and values of a sequence, split into heads."""

    key_BGSK: Tensor
    value_BGSV: Tensor

    def select(self, rows: Tensor) -> "KeyValue":
        """Give these rows, in this order: reordered, repeated or dropped."""
        return KeyValue(self.key_BGSK.index_select(0, rows), self.value_BGSV.index_select(0, rows))


class KeyValueCache:
    """The keys and values of the positions so far, each row with a length of its own.

    Rows are independent: they may take in different numbers of positions, be reordered, repeated or dropped. What
    is kept carries no gradient.
    """

    def __init__(self) -> None:
        self._kept: KeyValue | None = None
        self._lengths_B: Tensor | None = None
        self.longest = 0
        self._even = True  # all rows are as long as the longest: no row needs a mask of its own

    @property
    def lengths_B(self) -> Tensor:
        """How many positions each row holds."""
        if self._lengths_B is None:
            raise InputError("the cache is empty: it has no rows before the first positions are appended")
        return self._lengths_B

    @property
    def offset(self) -> Tensor | int:
        """The position that comes next: one number where all rows agree, else one for each row."""
        return self.longest if self._even else self.lengths_B

    def append(self, new: KeyValue, counts_B: Tensor | None = None) -> tuple[KeyValue, Mask]:
        """Put new positions behind the old; give all there are and who of the new queries may see them.

        `counts_B` says how many of the new positions of each row are real; the others are padding on the right,
        seen by none of the real ones and overwritten by what is appended next.
        """
        B, _, T, _ = new.key_BGSK.shape
        self.check(B, T, counts_B)
        before = self._lengths_B
        if before is None:
            before = torch.zeros(B, dtype=torch.int64, device=new.key_BGSK.device)
        S = self.longest + T
        kept = self._with_room_for(S, new)
        if self._even:
            kept.key_BGSK[:, :, self.longest : S] = new.key_BGSK.detach()
            kept.value_BGSV[:, :, self.longest : S] = new.value_BGSV.detach()
            mask = Causal()
        else:
            row_B1 = torch.arange(B, device=before.device)[:, None]
            at_BT = before[:, None] + torch.arange(T, device=before.device)
            kept.key_BGSK[row_B1, :, at_BT] = new.key_BGSK.detach().transpose(1, 2)
            kept.value_BGSV[row_B1, :, at_BT] = new.value_BGSV.detach().transpose(1, 2)
            mask = Causal(before)
        self._kept = kept
        self._lengths_B = before + (T if counts_B is None else counts_B)
        if counts_B is None:
            self.longest = S
        else:
            self._measure()
        return KeyValue(kept.key_BGSK[:, :, :S], kept.value_BGSV[:, :, :S]), mask

    @contextmanager
    def unless_refused(self) -> Iterator[None]:
        """Take back what this block appends if it ends in an error."""
        before = dict(vars(self))  # what lies behind the lengths is overwritten by what is appended next
        try:
            yield
        except BaseException:
            vars(self).update(before)
            raise

    def check(self, B: int, T: int, counts_B: Tensor | None) -> None:
        """Refuse what cannot be appended, before anything is."""
        if self._lengths_B is not None and self._lengths_B.size(0) != B:
            raise InputError(f"the cache holds {self._lengths_B.size(0)} rows and was given {B} new ones")
        if counts_B is None:
            return
        if (
            not isinstance(counts_B, Tensor)
            or counts_B.is_floating_point()
            or counts_B.dtype == torch.bool
            or tuple(counts_B.shape) != (B,)
        ):
            got = f"{counts_B.dtype} of shape {tuple(counts_B.shape)}" if isinstance(counts_B, Tensor) else counts_B
            raise InputError(f"lengths are integers of shape ({B},), one a row; got {got}")
        for row, count in enumerate(counts_B.tolist()):
            if not 0 <= count <= T:
                raise InputError(f"row {row} is said to have {count} real positions, of the {T} it was given")

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order."""
        if self._kept is None:
            return
        self._kept = self._kept.select(rows)
        self._lengths_B = self.lengths_B.index_select(0, rows)
        if not self._even:
            self._measure()

    def _measure(self) -> None:
        # Reads the lengths back from the device, so it is done only when rows may have become uneven or even again.
        lengths = self.lengths_B.tolist()
        self.longest = max(lengths, default=self.longest)
        self._even = all(length == self.longest for length in lengths)

    def _with_room_for(self, S: int, new: KeyValue) -> KeyValue:
        # Zeros rather than whatever memory holds: a weight of 0 on a NaN is a NaN.
        room = 0 if self._kept is None else self._kept.key_BGSK.size(2)
        if self._kept is not None and room >= S:
            return self._kept
        key, value = (x.new_zeros(*x.shape[:2], max(S, 2 * room, 16), x.size(3)) for x in new)
        if self._kept is not None:
            key[:, :, :room] = self._kept.key_BGSK
            value[:, :, :room] = self._kept.value_BGSV
        return KeyValue(key, value)


class DecoderLayerCache:
    """What one decoder layer keeps between steps: its own past, and the keys and values of the source."""

    def __init__(self, source: KeyValue | None = None) -> None:
        self.past = KeyValueCache()
        self.source = source

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order."""
        self.past.select(rows)
        self.source = None if self.source is None else self.source.select(rows)


class DecoderCache:
    """What a decoder keeps between steps, for all its layers, which have all seen the same positions."""

    def __init__(self, layers: list[DecoderLayerCache], memory_mask: Tensor | None = None) -> None:
        self.layers = layers
        self.memory_mask = memory_mask

    @property
    def past(self) -> KeyValueCache:
        """The first layer's past, whose lengths are every layer's."""
        return self.layers[0].past

    def check(self, B: int, T: int, counts_B: Tensor | None) -> None:
        """Refuse a step that does not fit, before any layer has taken it in."""
        source = self.layers[0].source
        if source is not None and source.key_BGSK.size(0) != B:
            raise InputError(f"the cache was started with {source.key_BGSK.size(0)} sources and was given {B} rows")
        self.past.check(B, T, counts_B)

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order: a beam's survivors, or the sentences that are not finished."""
        for layer in self.layers:
            layer.select(rows)
        if self.memory_mask is not None:
            self.memory_mask = self.memory_mask.index_select(0, rows)
