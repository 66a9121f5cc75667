"""Attention: one function, several paths, one answer."""

import math
from typing import Literal, overload

import torch
from torch import Tensor

from regard.errors import InputError
from regard.ops.dropout import checked_rate
from regard.ops.explicit import explicit_attention
from regard.ops.fused import fused_attention
from regard.ops.masks import Causal, Mask, as_mask, broadcast_to_scores, fitted_mask


@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | Tensor | None = None,
    *,
    causal: bool = False,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    return_weights: Literal[False] = False,
) -> Tensor: ...
@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | Tensor | None = None,
    *,
    causal: bool = False,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    return_weights: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | Tensor | None = None,
    *,
    causal: bool = False,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    return_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Scaled dot-product attention, softmax(QKᵀ/√d_k + M)V (all four notes).

    >>> import torch, regard
    >>> X = torch.tensor([[1.0, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]])  # the third note's three tokens
    >>> output, weights = regard.attention(X, X, X, return_weights=True)
    >>> weights
    tensor([[0.5065, 0.1863, 0.3072],
            [0.1863, 0.5065, 0.3072],
            [0.2741, 0.2741, 0.4519]])

    Queries are (T, K), (B, T, K) or (B, H, T, K), keys (…, S, K) and values (…, S, V); K and V may differ, and there
    may be fewer key and value heads than query heads, as long as these divide. `mask` is boolean, True = may attend,
    and broadcasts to the scores (…, T, S); `causal` adds the left-to-right mask; `bias` is the fourth note's M, added
    to the scores: -∞ hides a key; a finite value, however low, counts only against those of the query's other keys, so
    that one value for all of them changes nothing. `scale` is 1/√K unless given: 1 is the second note's form. A query
    that may attend to nothing gets zeros. With `return_weights` the weights come too, as they are before dropout.
    """
    _check_shapes(query, key, value)
    checked_rate(dropout)
    if scale is not None and not math.isfinite(scale):
        raise InputError(f"scale is {scale}; scores are multiplied by it, so it must be finite")
    rank = query.dim()
    scale = max(query.size(-1), 1) ** -0.5 if scale is None else scale
    query_BHTK, key_BGSK, value_BGSV = _with_heads(query, rank), _with_heads(key, rank), _with_heads(value, rank)
    BHTS = (*query_BHTK.shape[:3], key_BGSK.size(2))
    described = None if mask is None else fitted_mask(as_mask(mask), BHTS, rank, query.device)
    if causal:
        described = Causal() if described is None else described & Causal()
    if bias is not None:
        bias = _checked_bias(bias, BHTS, rank, query.device)

    # On the CPU the fused kernel knows no dropout: torch would take its own unfused path, with the slower dropout.
    if return_weights or (dropout > 0.0 and query.device.type == "cpu"):
        output_BHTV, weights_BHTS = explicit_attention(
            query_BHTK, key_BGSK, value_BGSV, described, bias, scale=scale, dropout=dropout
        )
        output = _without_heads(output_BHTV, rank)
        return (output, _without_heads(weights_BHTS, rank)) if return_weights else output
    fused_BHTV = fused_attention(query_BHTK, key_BGSK, value_BGSV, described, bias, scale=scale, dropout=dropout)
    return _without_heads(fused_BHTV, rank)


def _with_heads(x: Tensor, rank: int) -> Tensor:
    return x if rank == 4 else x[None, None] if rank == 2 else x[:, None]


def _without_heads(x: Tensor, rank: int) -> Tensor:
    return x if rank == 4 else x[0, 0] if rank == 2 else x[:, 0]


def _check_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    q, k, v = query.shape, key.shape, value.shape
    if not (2 <= len(q) <= 4 and len(q) == len(k) == len(v)):
        problem = "attention takes (T, K), (B, T, K) or (B, H, T, K), all three of one rank"
    elif q[-1] != k[-1]:
        problem = f"queries are {q[-1]} wide and keys {k[-1]}; they must be the same width to be compared"
    elif k[:-1] != v[:-1]:
        problem = "each key needs its value, so key and value may differ in their last size only"
    elif len(q) > 2 and q[0] != k[0]:
        problem = f"queries have {q[0]} rows and keys {k[0]}; they must have the same batch"
    elif len(q) == 4 and q[1] != k[1] and (k[1] == 0 or q[1] % k[1]):
        problem = f"{q[1]} query heads cannot share {k[1]} key and value heads evenly"
    elif not query.dtype == key.dtype == value.dtype:
        problem = f"query, key and value must be of one type, not {query.dtype}, {key.dtype} and {value.dtype}"
    elif not query.device == key.device == value.device:
        problem = f"query, key and value must be on one device, not {query.device}, {key.device} and {value.device}"
    elif not query.is_floating_point():
        problem = f"attention is computed on floating-point tensors, not {query.dtype}"
    else:
        return
    raise InputError(f"{problem}; got query {tuple(q)}, key {tuple(k)}, value {tuple(v)}")


def _checked_bias(bias: Tensor, BHTS: tuple[int, ...], rank: int, device: torch.device) -> Tensor:
    if not bias.is_floating_point():
        raise InputError(
            f"a bias is added to the scores and must be floating-point, got {bias.dtype}; pass a boolean mask as mask="
        )
    return broadcast_to_scores(bias, "bias", BHTS, rank, device)
