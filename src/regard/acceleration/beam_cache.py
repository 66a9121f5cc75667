"""The key/value cache of beam search.

The rows of a sentence never move. What each of them has written stays where it was written, at its position and row;
which row wrote what is in the past of each row is a small table, and that is all that a search reorders. The source's
keys and values are there once for each sentence, and not for each of its rows.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Table = TypeVar("Table", Tensor, NDArray[np.int32])

_ROUND = 8  # sizes grow in steps of this many positions, so that sums are cut up alike whatever lies beside


class State:
    """B sentences of N rows each: for every layer what they have written, and their sources."""

    def __init__(
        self,
        rows: int,
        past_widths: Sequence[int],
        source_widths: Sequence[int],
        dtype: torch.dtype,
        *,
        zeroed: bool = True,
    ) -> None:
        """Create an empty cache; with `zeroed`, unused slots are zero-initialized."""
        self.rows, self.count, self.dtype = rows, 0, dtype
        self._new = torch.zeros if zeroed else torch.empty
        self.past = [torch.zeros(0, 0, width, dtype=dtype) for width in past_widths]
        """For each layer (B, T · N, X): keys and values side by side, what row n wrote at position t at t · N + n."""
        # Small tables are numpy's: it looks things up in a tenth of the time that torch takes to start.
        self.ancestors_BNT: NDArray[np.int32] = np.zeros((0, rows, 0), dtype=np.int32)
        """Which row wrote what is at position t in the past of row n; -1 where nothing is yet."""
        self.positions_B: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """Where the rows of each sentence write next."""
        self.source = [torch.zeros(0, 0, width, dtype=dtype) for width in source_widths]
        """For each layer (B, S, X): keys and values side by side."""
        self.source_lengths_B: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._steps_left = 0  # as many steps have room, at least

    @property
    def length(self) -> int:
        """How many positions there are of the longest sentence, the next one counted and rounded up."""
        return _rounded(int(self.positions_B.max()) + 1) if self.count else 0

    @property
    def source_length(self) -> int:
        """How many positions the longest source has, rounded up; longer ones may have left."""
        return _rounded(int(self.source_lengths_B.max())) if self.count else 0

    def admit(self, lengths: Sequence[int], written: Sequence[int]) -> slice:
        """Make places for sentences with sources of these lengths, behind the others; give these places.

        So many positions of each are written by its first row, next, and are the past of all its rows.
        """
        before, self.count = self.count, self.count + len(lengths)
        places = slice(before, self.count)
        self.positions_B = np.concatenate([self.positions_B, np.array(written, dtype=np.int64)])
        self.source_lengths_B = np.concatenate([self.source_lengths_B, np.array(lengths, dtype=np.int64)])
        self._make_room()
        self.ancestors_BNT[places] = -1
        for place, count in enumerate(written, before):
            self.ancestors_BNT[place, :, :count] = 0
        return places

    def begin_step(self) -> None:
        """Allocate one position more, which each row writes itself."""
        self._steps_left -= 1
        if self._steps_left < 0:
            self._make_room()
        self.ancestors_BNT[np.arange(self.count), :, self.positions_B] = np.arange(self.rows)

    def end_step(self) -> None:
        """Go on to the next position."""
        self.positions_B += 1

    def reorder(self, parents_BN: NDArray[np.int64]) -> None:
        """Continue each row from another row of its sentence: its past is now that row's."""
        past_BNT = self.ancestors_BNT[: self.count, :, : self.length]
        past_BNT[:] = past_BNT[np.arange(self.count)[:, None], parents_BN]

    def keep(self, places: Sequence[int]) -> None:
        """Keep the sentences at these places; each stays where it is, or comes from behind all that are kept."""
        order = np.array(places, dtype=np.int64)
        moved = np.flatnonzero(order != np.arange(len(order)))
        assert (order[moved] >= len(order)).all(), f"{places} would be copied over one another"
        if len(moved):
            self.ancestors_BNT[moved] = self.ancestors_BNT[order[moved]]
            # Each with as much as it has written and read, which for most is far less than is allocated.
            written, read = self.positions_B * self.rows, self.source_lengths_B
            for tables, lengths_B in ((self.past, written), (self.source, read)):
                # As bytes, for numpy: it has copied a sentence before torch has started.
                views = [table.view(torch.uint8).numpy() for table in tables]
                for new in moved.tolist():
                    old = places[new]
                    length = int(lengths_B[old])
                    for view in views:
                        view[new, :length] = view[old, :length]
        self.positions_B, self.source_lengths_B = self.positions_B[order], self.source_lengths_B[order]
        self.count = len(places)

    def _make_room(self) -> None:
        """Allocate space for all sentences and the next position of each; what is there stays.

        Long sentences come first and few at a time, short ones later and many: space for as many as there ever are, as
        long as they ever are, would be space for what never comes.
        """
        B, N, T = self.ancestors_BNT.shape
        positions, source_positions = self.length, self.source_length
        more_B = self.count if self.count <= B else 2 * self.count
        if self.count > B or positions > T:
            more_T = _rounded(max(positions, 32) if positions <= T else max(positions, 2 * T, 32))
            self.past = [_moved(old, self._new(more_B, more_T * N, old.size(2), dtype=self.dtype)) for old in self.past]
            self.ancestors_BNT = _moved(self.ancestors_BNT, np.full((more_B, N, more_T), -1, dtype=np.int32))
        if self.source and (self.count > self.source[0].size(0) or source_positions > self.source[0].size(1)):
            self.source = [
                _moved(old, self._new(more_B, source_positions, old.size(2), dtype=self.dtype)) for old in self.source
            ]
        self._steps_left = self.ancestors_BNT.shape[2] - positions


def _moved(old: Table, new: Table) -> Table:
    """Copy what fits both."""
    common = tuple(slice(min(sizes)) for sizes in zip(old.shape, new.shape, strict=True))
    if 0 not in old.shape:
        new[common] = old[common]
    return new


def _rounded(positions: int) -> int:
    return -(-positions // _ROUND) * _ROUND
