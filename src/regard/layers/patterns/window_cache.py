"""The cache of a sliding window: a ring of the last positions of each row, and the sinks."""

import torch
from torch import Tensor

from regard.devices import to_device
from regard.layers.kv_cache import KeyValue, KeyValueCache, Past
from regard.layers.patterns.pattern import of_keys, of_queries
from regard.ops.masks import Causal, DenseMask


class WindowCache(KeyValueCache):
    """The keys and values of the first `sinks` positions and of the last `size` + 1, whatever the length of a row.

    Position p lies in slot p until all slots are taken; from then on what comes after the sinks takes the slot of what
    is `size` + 1 positions older, which no later query attends to. Rows are at slots of their own.
    """

    def __init__(self, size: int, sinks: int = 0) -> None:
        super().__init__()
        self.sinks, self.ring = sinks, size + 1

    def append(self, new: KeyValue) -> Past:
        """Append new positions; return what is kept and them, where they stand, and who may attend to whom."""
        B, _, T, _ = new.key_BGSK.shape
        longest = 0 if self._lengths is None or not len(self._lengths) else int(self._lengths.max())
        if longest + T <= self.sinks + self.ring:
            return super().append(new)
        even = B > 0 and self._is_even()
        before, counts = self._advance(B, T)
        device = new.key_BGSK.device
        before_B1, counts_B1 = (to_device(torch.from_numpy(x), device)[:, None] for x in (before, counts))
        kept = self._with_room_for(self.sinks + self.ring, new)
        if T == 1:
            # A position that is padding takes the slot of its successor, which will overwrite it.
            rows, slots = torch.arange(B, device=device), self._slots(before_B1[:, 0])
            for place, x_BGTK in zip(kept, new, strict=True):
                place[rows, :, slots] = x_BGTK[:, :, 0].detach()
            self._kept = kept
        else:
            shown = KeyValue(*(torch.cat([old, x.detach()], dim=2) for old, x in zip(kept, new, strict=True)))
            self._kept = self._taken_in(shown, before_B1, before_B1 + counts_B1)
        if longest == 0:
            return Past(KeyValue(*(x.detach() for x in new)), Causal())
        before_B1 = before_B1[:1] if even else before_B1
        query_index = before_B1 + torch.arange(T, device=device)
        if T == 1:
            shown, key_index = kept, self._positions(before_B1 + 1)
        else:
            key_index = torch.cat([self._positions(before_B1), query_index], dim=1)
        if even:
            query_index, key_index = query_index[0], key_index[0]
        visible = of_keys(key_index >= 0) & (of_keys(key_index) <= of_queries(query_index))
        return Past(shown, DenseMask(visible), key_index)

    def _room(self, S: int, space: int) -> int:
        return min(super()._room(S, space), self.sinks + self.ring)

    def _taken_in(self, shown: KeyValue, before_B1: Tensor, after_B1: Tensor) -> KeyValue:
        """Return the slots after new positions, which stand behind the old slots in what is shown."""
        positions_BS = self._positions(after_B1)
        S = positions_BS.size(1)
        source_BS = torch.where(
            positions_BS >= before_B1, S + positions_BS - before_B1, torch.arange(S, device=positions_BS.device)
        )
        B = shown.key_BGSK.size(0)
        index_B1S1 = source_BS.expand(B, S)[:, None, :, None]
        return KeyValue(*(x.gather(2, index_B1S1.expand(-1, x.size(1), -1, x.size(3))) for x in shown))

    def _slots(self, positions: Tensor) -> Tensor:
        return torch.where(positions < self.sinks, positions, self.sinks + (positions - self.sinks) % self.ring)

    def _positions(self, lengths_B1: Tensor) -> Tensor:
        """Return which position lies in each slot of rows of these lengths (B, S), negative where there is none."""
        slots = torch.arange(self.sinks + self.ring, device=lengths_B1.device)
        last_B1 = lengths_B1 - 1
        ring_BS = last_B1 - (last_B1 - slots) % self.ring
        empty_BS = slots > last_B1
        return torch.where(empty_BS, -1, torch.where(slots < self.sinks, slots, ring_BS))
