"""Positions added to the embeddings: computed or learned."""

from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.ops import sinusoidal_positions
from regard.ops.positions import SinusoidLayout


class TokenPositions(NamedTuple):
    """The positions of tokens, (T) where all rows agree, else (B, T), all of them below `end`."""

    positions: Tensor
    end: int


class SinusoidalPositions(nn.Module):
    """The paper's sines and cosines (§3.5), for any position: the table grows when a longer sequence comes.

    `layout` is how a row is laid out: sines and cosines interleaved as in the paper, or all sines before all cosines.
    `offset` is the position of a sequence's first token. In evaluation, token i stands at position `spacing` · i.
    """

    table: Tensor

    def __init__(
        self,
        d_model: int,
        *,
        length: int = 256,
        layout: SinusoidLayout = "interleaved",
        offset: int = 0,
        spacing: int = 1,
    ) -> None:
        super().__init__()
        self.d_model, self.offset, self.spacing = d_model, offset, spacing
        self.layout: SinusoidLayout = layout
        self.register_buffer("table", self._rows(length, torch.get_default_dtype()), persistent=False)

    def forward(self, positions: Tensor, end: int) -> Tensor:
        """Return the rows of these positions, all of them below `end`."""
        return self.rows(end)[positions]

    def rows(self, end: int) -> Tensor:
        """Return the rows of all positions, `end` of them or more."""
        table = self.table  # another thread may put a shorter one in its place
        spacing = 1 if self.training else self.spacing
        needed = self.offset + end * spacing
        if needed > table.size(0):
            longer = max(needed, 2 * table.size(0))
            table = self.table = self._rows(longer, table.dtype, table.device)
        return _spaced(table[self.offset :], spacing)

    def _rows(self, length: int, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
        return sinusoidal_positions(length, self.d_model, layout=self.layout, dtype=dtype, device=device)

    def _apply(self, *args: Any, **kwargs: Any) -> Self:
        # After a change of type the table is made again: rounded once, and not once for each type it has been through.
        before = self.table.dtype
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        if self.table.dtype != before:
            self.table = self._rows(self.table.size(0), self.table.dtype, self.table.device)
        return self


class LearnedPositions(nn.Module):
    """A learned vector for each position of a table that ends at `max_positions`.

    The first `offset` rows of the table are never used; some models' tables have them. In evaluation, token i stands
    at position `spacing` · i.
    """

    def __init__(self, d_model: int, *, max_positions: int, offset: int = 0, spacing: int = 1) -> None:
        super().__init__()
        self.max_positions, self.offset, self.spacing = max_positions, offset, spacing
        self.weight = nn.Parameter(torch.empty(max_positions + offset, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, positions: Tensor, end: int) -> Tensor:
        """Return the rows of these positions, all of them below `end`."""
        return self.rows(end)[positions]

    def rows(self, end: int) -> Tensor:
        """Return the rows of all positions, which are `end` or more."""
        spacing = 1 if self.training else self.spacing
        if (end - 1) * spacing >= self.max_positions:
            apart = "" if spacing == 1 else f", {spacing} apart,"
            raise InputError(
                f"a sequence of {end} positions{apart} is longer than the learned table of {self.max_positions}"
            )
        return _spaced(self.weight[self.offset :], spacing)


def _spaced(rows: Tensor, spacing: int) -> Tensor:
    """Return every row, or every second, third and so on; in one piece, as kernels read it."""
    return rows if spacing == 1 else rows[::spacing].contiguous()


AbsolutePositions = SinusoidalPositions | LearnedPositions
