"""From logits to the best continuations of each sentence, without sorting or writing more than is needed."""

import torch
from torch import Tensor

from regard.kernels.bindings import kernels, readable, threads

_BLOCK = 64


def log_probabilities(logits_BNW: Tensor) -> Tensor:
    """Give the log-probabilities of logits, which may be written over."""
    library = kernels()
    if library is None or not readable(logits_BNW):
        return logits_BNW.log_softmax(-1)
    W = logits_BNW.size(-1)
    library.regard_log_softmax(logits_BNW.data_ptr(), logits_BNW.numel() // max(W, 1), W, threads())
    return logits_BNW


def best_continuations(logs_BNW: Tensor, scores_BN: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Give the k highest totals of a row's score and a token's, highest first, and where they are: row · W + token."""
    B, N, W = logs_BNW.shape
    k = min(k, N * W)
    library = kernels()
    if library is None or not readable(logs_BNW) or k == 0:
        return _best_by_blocks(logs_BNW, scores_BN, k)
    values_BK, at_BK = torch.empty(B, k, dtype=torch.float64), torch.empty(B, k, dtype=torch.int64)
    scores_BN = scores_BN.double().contiguous()
    sizes = (B, N, W, k, threads())
    library.regard_top_k(logs_BNW.data_ptr(), scores_BN.data_ptr(), *sizes, values_BK.data_ptr(), at_BK.data_ptr())
    return values_BK, at_BK


def _best_by_blocks(logs_BNW: Tensor, scores_BN: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Do so with torch: the highest k are in the k blocks with the highest maxima, and only those are looked at."""
    B, N, W = logs_BNW.shape
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
