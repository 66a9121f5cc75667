"""From logits to the best continuations of each sentence, without sorting or writing more than is needed."""

from typing import Protocol

import torch
from torch import Tensor

_BLOCK = 64


class CandidateSelector(Protocol):
    """What a search selects candidates with; kernels have another one than torch."""

    def log_probabilities(self, logits_BNW: Tensor) -> Tensor:
        """Return the log-probabilities of logits, which may be written over."""

    def best_continuations(self, logs_BNW: Tensor, scores_BN: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k highest totals of a row's score and a token's, best first, and their places: row · W + token."""


class TorchSelector:
    """Selects candidates with torch."""

    def log_probabilities(self, logits_BNW: Tensor) -> Tensor:
        """Return the log-probabilities of logits."""
        return logits_BNW.log_softmax(-1)

    def best_continuations(self, logs_BNW: Tensor, scores_BN: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k highest totals of a row's score and a token's, highest first, and their places: row · W + token.

        They are in the k blocks of tokens with the highest maxima, so only those are searched.
        """
        B, N, W = logs_BNW.shape
        k = min(k, N * W)
        blocks = W // _BLOCK
        if N * blocks <= 2 * k:
            totals_BX = (logs_BNW + scores_BN[:, :, None]).flatten(1)
            values_BK, at_BK = totals_BX.topk(k, dim=1)
            return values_BK, at_BK
        whole_BNXC = logs_BNW[:, :, : blocks * _BLOCK].view(B, N, blocks, _BLOCK)
        maxima_BX = (whole_BNXC.amax(3) + scores_BN[:, :, None]).flatten(1)
        block_BK = maxima_BX.topk(k, dim=1, sorted=False).indices
        row_BK, within_BK = block_BK // blocks, block_BK % blocks
        values_BKC = whole_BNXC[torch.arange(B)[:, None], row_BK, within_BK] + scores_BN.gather(1, row_BK)[:, :, None]
        at_BKC = (row_BK * W + within_BK * _BLOCK)[:, :, None] + torch.arange(_BLOCK)
        values_BX, at_BX = values_BKC.flatten(1), at_BKC.flatten(1)
        if blocks * _BLOCK < W:  # what is left over after the last whole block
            rest = torch.arange(blocks * _BLOCK, W)
            rest_BNX = logs_BNW[:, :, blocks * _BLOCK :] + scores_BN[:, :, None]
            values_BX = torch.cat([values_BX, rest_BNX.flatten(1)], dim=1)
            at_BX = torch.cat([at_BX, (torch.arange(N)[:, None] * W + rest).flatten().expand(B, -1)], dim=1)
        values_BK, best_BK = values_BX.topk(k, dim=1)
        return values_BK, at_BX.gather(1, best_BK)
