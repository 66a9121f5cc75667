"""Nyströmformer: attention by way of landmarks (Xiong et al. 2021)."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.devices import in_full_precision
from regard.errors import InputError
from regard.layers.kinds.kind import AttentionKind, Role
from regard.layers.kv_cache import KeyValue, PastCache
from regard.ops import attention
from regard.ops.attention import attention_scores, masked_softmax, repeat_heads
from regard.ops.masks import DenseMask


class NystromAttention(AttentionKind):
    """softmax(Q K̃ᵀ) softmax(Q̃ K̃ᵀ)⁺ softmax(Q̃ Kᵀ) V, where Q̃ and K̃ are landmarks: means over stretches of positions.

    It approximates softmax(QKᵀ · scale)V by the Nyström method. The error falls as landmarks are added; where a row has
    no more positions than there are landmarks, each is one and only the pseudo-inverse is approximate. That is computed
    by `iterations` of a product of third order. A depthwise `convolution` of the values, of so many positions, may be
    added to the output, as in the paper's models.

    Landmarks average what is not hidden, and all of it depends on its own row and head alone.
    """

    undefined_in: ClassVar[dict[Role, str]] = {
        "decoder": "a landmark averages positions that come after some of its queries",
        "cross": "its landmarks are means of queries and of keys at the same positions of one sequence",
    }

    def __init__(
        self,
        num_heads: int,
        d_k: int,
        *,
        landmarks: int = 64,
        iterations: int = 6,
        convolution: int = 0,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        if convolution and convolution % 2 == 0:
            raise InputError(f"the convolution is over {convolution} positions; it is centered, so over an odd number")
        self.landmarks, self.iterations, self.convolution = landmarks, iterations, convolution
        self.scale = d_k**-0.5 if scale is None else scale
        self.kernel = nn.Parameter(torch.empty(num_heads, 1, convolution, 1)) if convolution else None
        if self.kernel is not None:
            nn.init.uniform_(self.kernel, -(convolution**-0.5), convolution**-0.5)

    def forward(
        self,
        query_BHTK: Tensor,
        key_value: KeyValue,
        allowed_BS: Tensor | None = None,
        *,
        states_BSD: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Return the outputs BHTV of all heads over whole sequences."""
        T, S = query_BHTK.size(2), key_value.key_BGSK.size(2)
        if causal:
            raise InputError(f"Nyström attention has no causal form: {self.undefined_in['decoder']}")
        if T != S:
            raise InputError(f"{T} queries attend to {S} keys; Nyström attention is self-attention alone")
        if S == 0:
            return query_BHTK.new_zeros(*query_BHTK.shape[:3], key_value.value_BGSV.size(-1))
        with in_full_precision(query_BHTK.device):
            return self._by_landmarks(query_BHTK, key_value, allowed_BS)

    def _by_landmarks(self, query_BHTK: Tensor, key_value: KeyValue, allowed_BS: Tensor | None) -> Tensor:
        means_BCS, used_BC = self._landmarks(query_BHTK, allowed_BS)
        mean_query_BHCK, mean_key_BGCK = (_averaged(means_BCS, x) for x in (query_BHTK, key_value.key_BGSK))
        scores_BHCC = attention_scores(mean_query_BHCK, mean_key_BGCK, self.scale)
        both = None if used_BC is None else DenseMask(used_BC[:, None, :, None] & used_BC[:, None, None, :])
        inverse_BHCC = pseudo_inverse(masked_softmax(scores_BHCC, both), self.iterations)

        real = None if allowed_BS is None else allowed_BS[:, None, None, :]
        value_BHCV = attention(mean_query_BHCK, *key_value, real, scale=self.scale)
        value_BHCV = inverse_BHCC.to(value_BHCV.dtype) @ value_BHCV
        mean_key_BHCK = repeat_heads(mean_key_BGCK, query_BHTK.size(1))
        used = None if used_BC is None else used_BC[:, None, None, :]
        output_BHTV = attention(query_BHTK, mean_key_BHCK, value_BHCV, used, scale=self.scale)
        return output_BHTV + self._convolved(key_value.value_BGSV, allowed_BS) if self.convolution else output_BHTV

    def step(self, query_BHTK: Tensor, key_value: KeyValue, states_BTD: Tensor, cache: PastCache) -> Tensor:
        """Refuse: there is no causal form."""
        raise InputError(f"Nyström attention has no causal form: {self.undefined_in['decoder']}")

    def _landmarks(self, query_BHTK: Tensor, allowed_BS: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the weights BCS with which positions are averaged, and which landmarks a row has, if not all of them.

        The n positions of a row that are not hidden are cut into stretches of equal length, up to one; a row of fewer
        positions than landmarks has n of them.
        """
        S, device = query_BHTK.size(2), query_BHTK.device
        C = min(self.landmarks, S)
        real_BS = torch.ones(1, S, dtype=torch.bool, device=device) if allowed_BS is None else allowed_BS
        rank_BS, count_B1 = real_BS.cumsum(1) - 1, real_BS.sum(1, keepdim=True)
        landmark_BS = rank_BS * C // count_B1.clamp_min(1)
        averaged_BCS = (landmark_BS[:, None] == torch.arange(C, device=device)[:, None]) & real_BS[:, None]
        means_BCS = averaged_BCS.to(query_BHTK.dtype) / averaged_BCS.sum(-1, keepdim=True).clamp_min(1)
        return means_BCS, None if allowed_BS is None else averaged_BCS.any(-1)

    def _convolved(self, value_BGSV: Tensor, allowed_BS: Tensor | None) -> Tensor:
        assert self.kernel is not None, "a convolution has a kernel"
        if allowed_BS is not None:
            value_BGSV = value_BGSV.masked_fill(~allowed_BS[:, None, :, None], 0.0)
        value_BHSV = repeat_heads(value_BGSV, self.kernel.size(0))
        kernel = self.kernel.to(value_BHSV.dtype)
        return F.conv2d(value_BHSV, kernel, padding=(self.convolution // 2, 0), groups=self.kernel.size(0))


def pseudo_inverse(matrix: Tensor, iterations: int) -> Tensor:
    """Return an approximation of the Moore-Penrose inverse of matrices of numbers that are not negative, (…, C, C).

    It starts from Aᵀ/(‖A‖₁‖A‖∞), with the norms of each matrix by itself, and repeats
    Z ← Z(13I - AZ(15I - AZ(7I - AZ)))/4 (Razavi et al. 2014).
    """
    norms = matrix.sum(-1).amax(-1) * matrix.sum(-2).amax(-1)
    inverse = matrix.mT / norms.masked_fill(norms == 0.0, 1.0)[..., None, None]
    identity = torch.eye(matrix.size(-1), dtype=matrix.dtype, device=matrix.device)
    for _ in range(iterations):
        product = matrix @ inverse
        inverse = inverse @ (13 * identity - product @ (15 * identity - product @ (7 * identity - product))) / 4
    return inverse


def _averaged(means_BCS: Tensor, x_BHSK: Tensor) -> Tensor:
    """Return the averages BHCK of positions, those of all heads in one product."""
    means = means_BCS[0] if means_BCS.size(0) == 1 else means_BCS
    B, H, _, K = x_BHSK.shape
    averaged_BCX = means.to(x_BHSK.dtype) @ x_BHSK.transpose(1, 2).flatten(2)
    return averaged_BCX.view(B, -1, H, K).transpose(1, 2)
