"""Attention by loops, as plainly as possible: the answer that every path is held to."""

import math

import torch
from torch import Tensor


def looped_attention(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor, bias: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Loop over sentences, heads and queries; each attends to the keys that it may attend to and to no others.

    A bias is taken less its row's largest value, which leaves the softmax as it is: of -1e300 plus a score, float64
    would keep nothing of the score.
    """
    (B, H, T, _), G, S, V = query.shape, key.size(1), key.size(2), value.size(3)
    allowed = allowed.expand(B, H, T, S) & (bias.expand(B, H, T, S) != -math.inf)
    bias = bias.expand(B, H, T, S)
    outputs = torch.zeros(B, H, T, V, dtype=query.dtype)
    weights = torch.zeros(B, H, T, S, dtype=query.dtype)
    for b in range(B):
        for h in range(H):
            g = h // (H // G)
            for t in range(T):
                seen = allowed[b, h, t].nonzero().flatten().tolist()
                if not seen:
                    continue
                row_bias = bias[b, h, t, seen] - bias[b, h, t, seen].max()
                scores = torch.stack([query[b, h, t].dot(key[b, g, s]) * scale for s in seen]) + row_bias
                unnormalized = (scores - scores.max().detach()).exp()
                row = unnormalized / unnormalized.sum()
                weights[b, h, t, seen] = row
                outputs[b, h, t] = row @ value[b, g, seen]
    return outputs, weights
