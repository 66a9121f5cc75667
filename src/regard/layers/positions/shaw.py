"""Shaw's relative positions: learned keys and values of distances (Shaw et al. 2018).

    score_ij = q_i · (k_j + a^K_{j-i}) · scale        output_i = Σ_j weight_ij (v_j + a^V_{j-i})

with distances clipped to ±max_distance. Neither sum needs a vector for each pair: queries are compared with the
2 · max_distance + 1 vectors a^K once, and weights are summed for each distance before they meet a^V.
"""

import torch
from torch import Tensor, nn

from regard.devices import in_full_precision
from regard.errors import InputError
from regard.layers.positions.relative import RelativePositions, distances

_MANY = 512  # keys: from so many on, those that are far from all queries are taken together


class ShawPositions(RelativePositions):
    """Add a learned key to each key and a learned value to each value, by their distance from the query.

    All heads of a layer share them. `scale` is that of the attention: what scores are multiplied by.
    """

    adds_bias = True
    adds_values = True

    def __init__(self, d_k: int, d_v: int, *, max_distance: int = 16, scale: float | None = None) -> None:
        super().__init__()
        if max_distance < 1:
            raise InputError(f"max_distance is {max_distance}; distances are clipped at 1 or more")
        self.max_distance, self.scale = max_distance, d_k**-0.5 if scale is None else scale
        self.key_vectors = nn.Parameter(torch.empty(2 * max_distance + 1, d_k))
        self.value_vectors = nn.Parameter(torch.empty(2 * max_distance + 1, d_v))
        nn.init.normal_(self.key_vectors, std=d_k**-0.5)
        nn.init.normal_(self.value_vectors, std=d_v**-0.5)

    def bias(self, query_BHTK: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Return q_i · a^K_{j-i} · scale for each pair, BHTS."""
        dtype = torch.promote_types(query_BHTK.dtype, torch.float32)
        with in_full_precision(query_BHTK.device):
            by_distance = (query_BHTK.to(dtype) * self.scale) @ self.key_vectors.to(dtype).mT
        before, near, after = self._ranges(query_positions, key_positions)
        index = self._index(query_positions, key_positions[..., before : before + near])
        near_BHTN = by_distance.gather(-1, index.expand(*query_BHTK.shape[:3], near))
        if near == key_positions.size(-1):
            return near_BHTN
        first, last = by_distance[..., :1], by_distance[..., -1:]
        return torch.cat([first.expand(-1, -1, -1, before), near_BHTN, last.expand(-1, -1, -1, after)], dim=-1)

    def values(self, weights_BHTS: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Return Σ_j weight_ij a^V_{j-i}, BHTV."""
        before, near, after = self._ranges(query_positions, key_positions)
        # Split rather than sliced: the gradient of each slice would be as large as the whole.
        before_BHTS, near_BHTN, after_BHTS = torch.split(weights_BHTS, [before, near, after], dim=-1)
        index = self._index(query_positions, key_positions[..., before : before + near]).expand(near_BHTN.shape)
        sums = weights_BHTS.new_zeros(*weights_BHTS.shape[:3], self.value_vectors.size(0))
        sums = sums.scatter_add(-1, index, near_BHTN)
        vectors = self.value_vectors.to(weights_BHTS.dtype)
        added = sums @ vectors
        if near == key_positions.size(-1):
            return added
        far: Tensor = before_BHTS.sum(-1, True) * vectors[0] + after_BHTS.sum(-1, True) * vectors[-1]
        return added + far

    def _ranges(self, query_positions: Tensor, key_positions: Tensor) -> tuple[int, int, int]:
        """Return how many keys come before, within and after `max_distance` of the queries: the others have one vector.

        All are within it where telling would cost more than it saves: few keys, or positions that are not at hand.
        """
        S, k = key_positions.size(-1), self.max_distance
        traced = torch.compiler.is_compiling() or type(query_positions) is not Tensor
        at_hand = query_positions.device.type == "cpu" and not traced
        shared = query_positions.dim() == key_positions.dim() == 1 and query_positions.numel() > 0
        if S < _MANY or not at_hand or not shared or not bool((key_positions.diff() >= 0).all()):
            return 0, S, 0
        ends = torch.stack((query_positions.min() - k, query_positions.max() + k))
        before, until = torch.searchsorted(key_positions.contiguous(), ends).tolist()
        return before, until - before, S - until

    def _index(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Return which of the vectors belongs to each pair: (T, S), or (B, 1, T, S) where rows differ."""
        k = self.max_distance
        return distances(query_positions, key_positions).clamp(-k, k) + k

    def extra_repr(self) -> str:
        """Show the options when a model is printed."""
        return f"max_distance={self.max_distance}"
