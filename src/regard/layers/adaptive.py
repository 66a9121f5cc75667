"""Stacks in which every position stops when it is ready: adaptive computation time (Graves 2016, Dehghani et al. 2019).

In step n, a position whose state is s_{n-1} halts with probability p_n = σ(w·s_{n-1} + b). It stops in the first step N
where p_1 + … + p_N exceeds the threshold, or in the last step. Its output is Σ w_n s_n with w_n = p_n, and for the last
of them the remainder, w_N = 1 - p_1 - … - p_{N-1}. From then on its state stays as it is: others still attend to it.
The ponder cost of a position is N + w_N.

Every step is computed for every position, so that this saves no time: it changes what a model can learn.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from regard.layers.decoder import Decoder, DecoderLayer
from regard.layers.encoder import Encoder, EncoderLayer
from regard.layers.kv_cache import DecoderCache
from regard.ops import Mask


class Halting(nn.Module):
    """Halting probabilities: when each position stops, and the weight of each of its steps."""

    def __init__(self, d_model: int, *, threshold: float = 0.99, cost: float = 0.01) -> None:
        super().__init__()
        self.threshold, self.cost = threshold, cost
        self.probability = nn.Linear(d_model, 1)
        nn.init.zeros_(self.probability.weight)
        nn.init.ones_(self.probability.bias)  # two steps for every position, to begin with

    def forward(
        self, x_BTD: Tensor, steps: int, step: Callable[[int, Tensor], Tensor], costs: list[Tensor] | None = None
    ) -> Tensor:
        """Apply a step so many times; return the weighted sum of the states. Costs BT are appended to `costs`."""
        running_BT = torch.ones(x_BTD.shape[:2], dtype=torch.bool, device=x_BTD.device)
        reached_BT, ponder_BT = x_BTD.new_zeros(x_BTD.shape[:2]), x_BTD.new_zeros(x_BTD.shape[:2])
        output_BTD = torch.zeros_like(x_BTD)
        for number in range(steps):
            probability_BT = self.probability(x_BTD).sigmoid().squeeze(-1)
            stops_BT = running_BT
            if number < steps - 1:
                stops_BT = running_BT & (reached_BT + probability_BT > self.threshold)
            goes_on_BT = running_BT & ~stops_BT
            remainder_BT = (1.0 - reached_BT) * stops_BT
            taken_BT = probability_BT * goes_on_BT
            ponder_BT = ponder_BT + running_BT + remainder_BT
            reached_BT = reached_BT + taken_BT
            after_BTD = step(number, x_BTD)
            output_BTD = output_BTD + (taken_BT + remainder_BT)[..., None] * after_BTD
            x_BTD = torch.where(running_BT[..., None], after_BTD, x_BTD)
            running_BT = goes_on_BT
        if costs is not None:
            costs.append(self.cost * ponder_BT)
        return output_BTD


class AdaptiveEncoder(Encoder):
    """An encoder of one layer, applied to each position until it halts."""

    def __init__(self, layers: Iterable[EncoderLayer], final_norm: nn.Module | None, halting: Halting) -> None:
        super().__init__(layers, final_norm)
        self.halting = halting

    def forward(
        self,
        x_BSD: Tensor,
        mask: Mask | Tensor | None = None,
        *,
        positions: Tensor | None = None,
        costs: list[Tensor] | None = None,
    ) -> Tensor:
        """Return the encoder's states BSD; the ponder costs BS are appended to `costs`."""
        at = {} if positions is None else {"positions": positions}

        def step(depth: int, x_BSD: Tensor) -> Tensor:
            after_BSD: Tensor = self.layers[depth](x_BSD, mask, **at)
            return after_BSD

        x_BSD = self.halting(x_BSD, len(self.layers), step, costs)
        return x_BSD if self.final_norm is None else self.final_norm(x_BSD)


class AdaptiveDecoder(Decoder):
    """A decoder of one layer, applied to each position until it halts, which depends on no later position."""

    def __init__(self, layers: Iterable[DecoderLayer], final_norm: nn.Module | None, halting: Halting) -> None:
        super().__init__(layers, final_norm)
        self.halting = halting

    def forward(
        self,
        x_BTD: Tensor,
        memory_BSD: Tensor | None = None,
        memory_mask: Mask | Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        cache: DecoderCache | None = None,
        positions: Tensor | None = None,
        record: list[Tensor] | None = None,
        costs: list[Tensor] | None = None,
    ) -> Tensor:
        """Return the decoder's states BTD; the ponder costs BT are appended to `costs`."""
        at = {} if positions is None else {"positions": positions}

        def step(depth: int, x_BTD: Tensor) -> Tensor:
            past = None if cache is None else cache.layers[depth]
            after_BTD: Tensor = self.layers[depth](
                x_BTD, memory_BSD, memory_mask, mask=mask, cache=past, record=record, **at
            )
            return after_BTD

        x_BTD = self.halting(x_BTD, len(self.layers), step, costs)
        return x_BTD if self.final_norm is None else self.final_norm(x_BTD)
