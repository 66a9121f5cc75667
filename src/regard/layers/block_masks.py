"""The masks of attention in blocks: which blocks of keys a block of queries needs, and who attends to whom in them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.layers.patterns.pattern import Pattern
from regard.ops import Causal, Mask
from regard.ops.masks import And, DenseMask


class BlockMasks:
    """A mask over T queries and S keys, and that of a pattern if there is one, in blocks of C positions."""

    def __init__(
        self, pattern: Pattern | None, mask: Mask | None, T: int, S: int, C: int, device: torch.device
    ) -> None:
        self.pattern, self.shift, self.count = pattern, S - T, -(-S // C)
        self.rows = torch.split(torch.arange(T, device=device), C)
        self.columns = torch.split(torch.arange(S, device=device), C)
        parts = _parts(mask)
        self.causal = any(_is_causal(part) for part in parts)
        # Most are of the keys alone. They are written out once, and not again for every block.
        self._others = [part.dense(T, S, device) for part in parts if not _is_causal(part)]
        self._structure: Tensor | None = None

    def key_blocks(self, number: int) -> Sequence[int]:
        """Return the blocks of keys that a block of queries may attend to."""
        causal = self.causal and self.shift == 0
        if self.pattern is None:
            return range(number + 1 if causal else self.count)
        chosen = self.pattern.key_blocks(number, self.count)
        return [block for block in chosen if block <= number] if causal else chosen

    def mask(self, number: int, rows: Tensor, columns: Tensor) -> Mask | None:
        """Return the mask of a block of queries over these keys; blocks are asked for in order."""
        if self._structure is None or self.pattern is None or not self.pattern.repeats(number, self.count):
            self._structure = self._structured(rows, columns)
        allowed = self._structure
        for other in self._others:
            part = indexed(other, rows, columns)
            allowed = part if allowed is None else allowed & part
        return None if allowed is None else DenseMask(allowed)

    def _structured(self, rows: Tensor, columns: Tensor) -> Tensor | None:
        """Return the mask of the pattern and of causality, which many blocks have in common."""
        allowed = columns <= rows[:, None] + self.shift if self.causal else None
        if self.pattern is None or self.pattern.whole_blocks:
            return allowed
        pattern = self.pattern.allowed(rows, columns)
        return pattern if allowed is None else allowed & pattern


def indexed(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return some rows and columns of what broadcasts to (…, T, S)."""
    if x.dim() > 1 and x.size(-2) > 1:
        x = x.index_select(-2, rows)
    return x.index_select(-1, columns) if x.size(-1) > 1 else x


def _parts(mask: Mask | None) -> list[Mask]:
    """Return the masks that are combined by `&`."""
    if type(mask) is And:  # a subclass may be any mask
        return _parts(mask.first) + _parts(mask.second)
    return [] if mask is None else [mask]


def _is_causal(mask: Mask) -> bool:
    return type(mask) is Causal and mask.offset_B is None
