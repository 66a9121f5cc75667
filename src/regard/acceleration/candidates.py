"""Candidates of a search selected by kernels."""

import torch
from torch import Tensor

from regard.decoding.candidates import CandidateSelector, TorchSelector
from regard.kernels.bindings import kernels, library
from regard.kernels.dispatch import readable, threads


class KernelSelector(TorchSelector):
    """Selects the same candidates by kernels, where they can read the logits."""

    def log_probabilities(self, logits_BNW: Tensor) -> Tensor:
        """Return the log-probabilities of logits, in their place."""
        if not readable(logits_BNW):
            return super().log_probabilities(logits_BNW)
        W = logits_BNW.size(-1)
        library().regard_log_softmax(logits_BNW.data_ptr(), logits_BNW.numel() // max(W, 1), W, threads())
        return logits_BNW

    def best_continuations(self, logs_BNW: Tensor, scores_BN: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k highest totals of a row's score and a token's, best first, and their places: row · W + token."""
        B, N, W = logs_BNW.shape
        k = min(k, N * W)
        if not readable(logs_BNW) or k == 0:
            return super().best_continuations(logs_BNW, scores_BN, k)
        values_BK, at_BK = torch.empty(B, k, dtype=torch.float64), torch.empty(B, k, dtype=torch.int64)
        scores_BN = scores_BN.double().contiguous()
        sizes = (B, N, W, k, threads())
        library().regard_top_k(
            logs_BNW.data_ptr(), scores_BN.data_ptr(), *sizes, values_BK.data_ptr(), at_BK.data_ptr()
        )
        return values_BK, at_BK


def candidate_selector() -> CandidateSelector:
    """Return the fastest selector that there is here."""
    return TorchSelector() if kernels() is None else KernelSelector()
