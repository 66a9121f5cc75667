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


def is_close(buffer: Tensor, expected: Tensor) -> bool:
    """Whether a buffer holds what is computed for it, up to rounding.

    >>> is_close(torch.tensor([0.5]), torch.tensor([0.5000001])), is_close(torch.tensor([0.5]), torch.tensor([0.6]))
    (True, False)
    """
    eps = torch.finfo(buffer.dtype).eps if buffer.is_floating_point() else 0.0
    wide = torch.promote_types(buffer.dtype, torch.float32)
    return buffer.shape == expected.shape and torch.allclose(
        buffer.to(wide), expected.to(wide), rtol=0.0, atol=max(1e-4, 2 * eps)
    )


class SinusoidalPositions(nn.Module):
    """The paper's sines and cosines (§3.5), for any position: the table grows when a longer sequence comes.

    `layout` is how a row is laid out: sines and cosines interleaved as in the paper, or all sines before all cosines.
    `offset` is the position of a sequence's first token.
    """

    table: Tensor

    def __init__(self, d_model: int, *, length: int = 256, layout: SinusoidLayout = "interleaved", offset: int = 0):
        super().__init__()
        self.d_model, self.offset = d_model, offset
        self.layout: SinusoidLayout = layout
        self.register_buffer("table", self._rows(length, torch.get_default_dtype()), persistent=False)

    def forward(self, positions: Tensor, end: int) -> Tensor:
        """Return the rows of these positions, all of them below `end`."""
        return self.rows(end)[positions]

    def rows(self, end: int) -> Tensor:
        """Return the rows of all positions, `end` of them or more."""
        table = self.table  # another thread may put a shorter one in its place
        if self.offset + end > table.size(0):
            longer = self._rows(max(self.offset + end, 2 * table.size(0)), table.dtype, table.device)
            if not table.is_meta and not is_close(table, longer[: table.size(0)]):
                raise InputError(f"a table of sinusoids that was changed ends at {table.size(0)} positions")
            table = self.table = longer
        return table[self.offset :] if self.offset else table

    def expected_buffers(self) -> dict[str, Tensor]:
        """Return the table as it is computed, to compare with."""
        return {"table": self._rows(self.table.size(0), self.table.dtype, self.table.device)}

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

    The first `offset` rows of the table are never used; some models' tables have them.
    """

    def __init__(self, d_model: int, *, max_positions: int, offset: int = 0):
        super().__init__()
        self.max_positions, self.offset = max_positions, offset
        self.weight = nn.Parameter(torch.empty(max_positions + offset, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, positions: Tensor, end: int) -> Tensor:
        """Return the rows of these positions, all of them below `end`."""
        return self.rows(end)[positions]

    def rows(self, end: int) -> Tensor:
        """Return the rows of all positions, which are `end` or more."""
        if end > self.max_positions:
            raise InputError(f"a sequence of {end} positions is longer than the learned table of {self.max_positions}")
        return self.weight[self.offset :]


AbsolutePositions = SinusoidalPositions | LearnedPositions
