"""Attention step by step, as the notes write it: scores, mask, softmax, weighted sum.

    softmax(QKᵀ/√d_k + M)V

Every intermediate is a tensor of its own, so that the weights can be looked at and gradients of any order taken.
"""

import torch
from torch import Tensor

from regard.ops.dropout import dropout as apply_dropout
from regard.ops.masks import Mask


def attention_scores(query_BHTK: Tensor, key_BGSK: Tensor, scale: float) -> Tensor:
    """Compare every query with every key: QKᵀ · scale, of shape BHTS (all notes, "scores").

    With fewer key heads than query heads (G < H), each key head serves H/G neighbouring query heads. Scores are float32
    at least: half precision could not hold them.
    """
    key_BHSK = repeat_heads(key_BGSK, query_BHTK.size(1))
    precision = torch.promote_types(query_BHTK.dtype, torch.float32)
    return (query_BHTK.to(precision) * scale) @ key_BHSK.to(precision).mT


def masked_softmax(scores_BHTS: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Turn scores into weights that sum to one over the keys, -∞ where a query may not attend.

    A query whose scores are all -∞ gets weights of zero, and passes back a gradient of zero, where the plain softmax
    is 0/0.
    """
    if allowed is not None:
        scores_BHTS = scores_BHTS.masked_fill(~allowed, -torch.inf)
    if scores_BHTS.size(-1) == 0:
        return scores_BHTS
    nothing_BHT1 = scores_BHTS.detach().amax(-1, keepdim=True) == -torch.inf
    return scores_BHTS.masked_fill(nothing_BHT1, 0.0).softmax(-1).masked_fill(nothing_BHT1, 0.0)


def centered_bias(bias: Tensor, allowed: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return M less its largest value for each query, -∞ where the query may not attend, in the scores' type.

    A softmax does not change when a row is shifted: a row of one finite value, -1e9 or the least of its type, is no
    bias at all. Added to the scores as it is, it would swallow them, and the log-sum-exp that fused kernels keep for
    the backward pass. The shift is made before the bias is brought to the scores' type, over the keys that the mask
    leaves, so the largest is 0 and no row becomes -∞ by overflow.
    """
    bias = bias.to(torch.promote_types(bias.dtype, torch.float32))
    if allowed is not None:
        bias = bias.masked_fill(~allowed, -torch.inf)
    if bias.size(-1) == 0:
        return bias.to(dtype)
    largest = bias.detach().amax(-1, keepdim=True)
    return (bias - largest.masked_fill(largest == -torch.inf, 0.0)).to(dtype)


def weighted_sum(weights_BHTS: Tensor, value_BGSV: Tensor) -> Tensor:
    """Mix the values by their weights: weights × V, of shape BHTV."""
    return weights_BHTS @ repeat_heads(value_BGSV, weights_BHTS.size(1))


def repeat_heads(x_BGSK: Tensor, H: int) -> Tensor:
    """Repeat each key or value head for the query heads that share it: BGSK to BHSK."""
    G = x_BGSK.size(1)
    return x_BGSK if G == H else x_BGSK.repeat_interleave(H // G, dim=1)


def explicit_attention(
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    value_BGSV: Tensor,
    mask: Mask | None = None,
    bias: Tensor | None = None,
    *,
    scale: float,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Give the output BHTV and the weights BHTS it was mixed with, as they were before dropout."""
    T, S = query_BHTK.size(2), key_BGSK.size(2)
    scores_BHTS = attention_scores(query_BHTK, key_BGSK, scale)
    allowed = None if mask is None else mask.dense(T, S, query_BHTK.device)
    if bias is not None:
        bias = centered_bias(bias, allowed, scores_BHTS.dtype)
        scores_BHTS = scores_BHTS + bias
        allowed = bias != -torch.inf
    weights_BHTS = masked_softmax(scores_BHTS, allowed).to(query_BHTK.dtype)
    output_BHTV = weighted_sum(apply_dropout(weights_BHTS, dropout), value_BGSV)
    return output_BHTV, weights_BHTS
