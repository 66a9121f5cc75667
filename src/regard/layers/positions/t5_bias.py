"""T5's relative positions: a learned bias for each head and each bucket of distances (Raffel et al. 2020, §2.1).

Near distances have a bucket each, farther ones share buckets that grow with the logarithm, and all from `max_distance`
on share the last. In an encoder, keys behind their query have the upper half of the buckets.
"""

from bisect import bisect_right

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.devices import to_device
from regard.errors import InputError
from regard.layers.positions.relative import RelativePositions, distances


def t5_buckets(count: int, max_distance: int) -> list[int]:
    """Return the bucket of each distance from 0 to `max_distance`, of so many for one direction.

    Half of them hold one distance each. Distance d of the others is in bucket n/2 + ⌊log(d / (n/2)) / log(max_distance
    / (n/2)) · n/2⌋. Logarithms of whole numbers are compared as powers, so that none depends on rounding.

    >>> t5_buckets(8, 16)
    [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7, 7]
    """
    exact = count // 2
    shared = count - exact
    starts: list[int] = []
    for bucket in range(1, shared):
        start = starts[-1] if starts else exact
        while start**shared * exact**bucket < max_distance**bucket * exact**shared:
            start += 1
        starts.append(start)
    return [d if d < exact else exact + bisect_right(starts, d) for d in range(max_distance + 1)]


class T5Bias(RelativePositions):
    """Add to the score of query i and key j a learned bias for the bucket of j - i, one for each head.

    One table, (buckets, heads), serves all layers of a stack: layers after the first are `tied_to` it.
    """

    adds_bias = True

    def __init__(
        self,
        num_heads: int,
        *,
        bidirectional: bool,
        buckets: int = 32,
        max_distance: int = 128,
        tied_to: nn.Parameter | None = None,
    ) -> None:
        super().__init__()
        check_t5_buckets(buckets, max_distance)
        self.bidirectional, self.buckets, self.max_distance = bidirectional, buckets, max_distance
        self.weight = t5_table(buckets, num_heads) if tied_to is None else tied_to
        backward = t5_buckets(buckets // 2 if bidirectional else buckets, max_distance)
        forward = [buckets // 2 + bucket for bucket in backward[1:]] if bidirectional else [0] * max_distance
        self._bucket_of = [*reversed(backward), *forward]  # of the distances from -max_distance to max_distance

    def bias(self, query_BHTK: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Return the biases (1 or B, H, T, S)."""
        distance = distances(query_positions, key_positions)
        number = (distance if distance.dim() == 2 else distance[:, 0]).clamp(-self.max_distance, self.max_distance)
        # From a bias for each distance: the gradient of the table is then a sum over distances, not over all pairs.
        by_distance = F.embedding(to_device(torch.tensor(self._bucket_of), number.device), self.weight)
        bias = F.embedding(number + self.max_distance, by_distance)
        return bias.movedim(-1, -3) if distance.dim() == 4 else bias.movedim(-1, 0)[None]

    def extra_repr(self) -> str:
        """Show the options when a model is printed."""
        return f"buckets={self.buckets}, max_distance={self.max_distance}, bidirectional={self.bidirectional}"


def t5_table(buckets: int, num_heads: int) -> nn.Parameter:
    """Return a new table of biases, small beside the scores."""
    weight = nn.Parameter(torch.empty(buckets, num_heads))
    nn.init.normal_(weight, std=0.1)
    return weight


def check_t5_buckets(buckets: int, max_distance: int) -> None:
    """Refuse buckets that leave no room for both directions, or for distances that share one."""
    if buckets < 4 or buckets % 2:
        raise InputError(f"buckets is {buckets}; T5 has two halves for the two directions: an even number from 4 on")
    if max_distance <= buckets // 2:
        raise InputError(
            f"max_distance is {max_distance}; with {buckets} buckets a causal decoder has one for each distance below "
            f"{buckets // 2}, and the last comes after them"
        )
