"""Shaw's relative positions: learned keys and values of distances (Shaw et al. 2018).

    score_ij = q_i · (k_j + a^K_{j-i}) · scale        output_i = Σ_j weight_ij (v_j + a^V_{j-i})

with distances clipped to ±max_distance. Neither sum needs a vector for each pair: queries are compared with the
2 · max_distance + 1 vectors a^K once, and weights are summed for each distance before they meet a^V.
"""

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.layers.positions.relative import RelativePositions, distances


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
        by_distance = (query_BHTK.to(dtype) * self.scale) @ self.key_vectors.to(dtype).mT
        index = self._index(query_positions, key_positions)
        return by_distance.gather(-1, index.expand(*query_BHTK.shape[:3], index.size(-1)))

    def values(self, weights_BHTS: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Return Σ_j weight_ij a^V_{j-i}, BHTV."""
        index = self._index(query_positions, key_positions).expand(weights_BHTS.shape)
        sums = weights_BHTS.new_zeros(*weights_BHTS.shape[:3], self.value_vectors.size(0))
        return sums.scatter_add(-1, index, weights_BHTS) @ self.value_vectors.to(weights_BHTS.dtype)

    def _index(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Return which of the vectors belongs to each pair: (T, S), or (B, 1, T, S) where rows differ."""
        k = self.max_distance
        return distances(query_positions, key_positions).clamp(-k, k) + k

    def extra_repr(self) -> str:
        """Show the options when a model is printed."""
        return f"max_distance={self.max_distance}"
