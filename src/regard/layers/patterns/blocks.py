"""A fixed block-sparse pattern: a matrix says which blocks of keys each block of queries attends to."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.errors import InputError
from regard.layers.patterns.pattern import Pattern, of_keys, of_queries


class BlockSparse(Pattern):
    """Block i of the queries attends to the blocks j of the keys with a 1 in row i, column j of a square matrix.

    A sequence ends where the matrix does. Queries of a row of zeros attend to nothing, and get zeros.

    >>> BlockSparse([[1, 0], [1, 1]], block=2).dense(3).int()
    tensor([[1, 1, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """

    whole_blocks = True
    matrix: Tensor

    def __init__(self, rows: Sequence[Sequence[int]], *, block: int = 64) -> None:
        super().__init__(block)
        check_matrix(rows)
        self.longest = len(rows) * block
        self._chosen = [[column for column, value in enumerate(row) if value] for row in rows]
        self.register_buffer("matrix", torch.tensor(rows, dtype=torch.bool), persistent=False)

    def expected_buffers(self) -> dict[str, Tensor]:
        """Return the matrix as it was given, to compare with."""
        chosen = [[column in row for column in range(len(self._chosen))] for row in self._chosen]
        return {"matrix": torch.tensor(chosen, device=self.matrix.device)}

    def allowed(self, query_index: Tensor, key_index: Tensor) -> Tensor:
        """Return who may attend to whom."""
        # Padding on the right may stand beyond the end.
        rows, columns = (
            index.div(self.block, rounding_mode="floor").clamp(0, len(self._chosen) - 1)
            for index in (query_index, key_index)
        )
        return self.matrix[of_queries(rows), of_keys(columns)]

    def key_blocks(self, number: int, count: int) -> Sequence[int]:
        """Return the blocks of a row of the matrix."""
        return [column for column in self._chosen[number] if column < count]


def check_matrix(rows: Sequence[Sequence[int]]) -> None:
    """Raise an `InputError` unless these are the rows of a square matrix of 0s and 1s."""
    if not rows:
        raise InputError("the matrix of blocks has no rows")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows):
            raise InputError(
                f"row {number} of the matrix of blocks has {len(row)} values; a matrix of {len(rows)} rows is square"
            )
        if any(value not in (0, 1) for value in row):
            raise InputError(f"row {number} of the matrix of blocks is {list(row)}; its values are 0 and 1")
