"""Scaled dot-product attention (Vaswani et al. 2017, §3.2.1).

Attention(Q, K, V) = softmax(QKᵀ/√d_k + M) V
"""

import math
from typing import Any, Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError
from regard.ops.dropout import checked_rate
from regard.ops.dropout import dropout as apply_dropout
from regard.ops.masks import Causal, Mask, as_mask, broadcast_to_scores, fitted_mask, kernel_mask


def reference_attention(
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    value_BGSV: Tensor,
    mask: Mask | None = None,
    bias: Tensor | None = None,
    *,
    scale: float,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Attention step by step; returns the output BHTV and the weights BHTS, as they are before dropout."""
    scores_BHTS = attention_scores(query_BHTK, key_BGSK, scale)
    T, S = scores_BHTS.shape[2:]
    allowed = None if mask is None else mask.dense(T, S, query_BHTK.device)
    if bias is not None:
        bias = centered_bias(bias, allowed, scores_BHTS.dtype)
        scores_BHTS, allowed = scores_BHTS + bias, bias != -torch.inf
    weights_BHTS = masked_softmax(scores_BHTS, allowed).to(query_BHTK.dtype)
    output_BHTV = apply_dropout(weights_BHTS, dropout) @ repeat_heads(value_BGSV, query_BHTK.size(1))
    return output_BHTV, weights_BHTS


def attention_scores(query_BHTK: Tensor, key_BGSK: Tensor, scale: float) -> Tensor:
    """Compare every query with every key: QKᵀ · scale, of shape BHTS.

    With fewer key heads than query heads (G < H), each key head serves H/G neighboring query heads. Scores are float32
    at least: half precision could not hold them.
    """
    key_BHSK = repeat_heads(key_BGSK, query_BHTK.size(1))
    precision = torch.promote_types(query_BHTK.dtype, torch.float32)
    return (query_BHTK.to(precision) * scale) @ key_BHSK.to(precision).mT


def masked_softmax(scores_BHTS: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Softmax over the keys that a query may attend to.

    A query that may attend to nothing gets weights of zero, and gradients of zero, where the plain softmax is 0/0.
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


def repeat_heads(x_BGSK: Tensor, H: int) -> Tensor:
    """Repeat each key or value head for the query heads that share it: BGSK to BHSK."""
    G = x_BGSK.size(1)
    return x_BGSK if G == H else x_BGSK.repeat_interleave(H // G, dim=1)


def fused_attention(
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    value_BGSV: Tensor,
    mask: Mask | None = None,
    bias: Tensor | None = None,
    *,
    scale: float,
    dropout: float = 0.0,
) -> Tensor:
    """The same by torch's fused kernel, which never holds the scores in memory; returns the output BHTV."""
    if query_BHTK.numel() == 0 or value_BGSV.numel() == 0:  # the kernels divide by their sizes
        return reference_attention(query_BHTK, key_BGSK, value_BGSV, mask, bias, scale=scale)[0]
    if scale <= 0.0:  # the causal kernels multiply the -∞ of what is masked by the scale
        query_BHTK, scale = query_BHTK * scale, 1.0
    T, S, V = query_BHTK.size(2), value_BGSV.size(2), value_BGSV.size(3)
    causal, allowed = kernel_mask(mask, T, S, query_BHTK.device)
    query_BHTK, key_BGSK, value_BGSV = _of_one_width(query_BHTK, key_BGSK, value_BGSV)
    on_cpu = query_BHTK.device.type == "cpu"
    if causal and allowed is not None and bias is None and dropout == 0.0 and on_cpu:
        return _causal_and_masked_on_cpu(query_BHTK, key_BGSK, value_BGSV, allowed, scale)[..., :V]
    if causal and (allowed is not None or bias is not None):
        square = Causal().dense(T, S, query_BHTK.device)
        causal, allowed = False, square if allowed is None else square & allowed
    combined, nothing = allowed, None
    if bias is not None:
        # The CPU kernel adds float32 to the scores of half precision; other devices' kernels want the query's type.
        wide = torch.promote_types(query_BHTK.dtype, torch.float32)
        combined = centered_bias(bias, allowed, wide if on_cpu else query_BHTK.dtype)
    if combined is not None and not on_cpu:
        combined, nothing = open_empty_rows(combined)
    output_BHTV = F.scaled_dot_product_attention(
        query_BHTK,
        key_BGSK,
        value_BGSV,
        attn_mask=combined,
        dropout_p=dropout,
        is_causal=causal,
        scale=scale,
        enable_gqa=query_BHTK.size(1) != key_BGSK.size(1),
    )[..., :V]
    return output_BHTV if nothing is None else output_BHTV.masked_fill(nothing, 0.0)


def open_empty_rows(combined: Tensor) -> tuple[Tensor, Tensor]:
    """Open the rows of queries that may attend to nothing; also return which they are, to zero their output.

    The CPU kernels give such a query zeros by themselves; other devices' kernels do not promise to.
    """
    if combined.dtype == torch.bool:
        nothing = ~combined.any(-1, keepdim=True)
        return combined | nothing, nothing
    nothing = (combined == -torch.inf).all(-1, keepdim=True)
    return combined.masked_fill(nothing, 0.0), nothing


def _of_one_width(query_BHTK: Tensor, key_BGSK: Tensor, value_BGSV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # The kernel wants keys and values of one width. Zeros widen the narrower without changing any product.
    K, V = key_BGSK.size(3), value_BGSV.size(3)
    if K < V:
        return F.pad(query_BHTK, (0, V - K)), F.pad(key_BGSK, (0, V - K)), value_BGSV
    if V < K:
        return query_BHTK, key_BGSK, F.pad(value_BGSV, (0, K - V))
    return query_BHTK, key_BGSK, value_BGSV


def _causal_and_masked_on_cpu(
    query_BHTK: Tensor, key_BGSK: Tensor, value_BGSV: Tensor, allowed: Tensor, scale: float
) -> Tensor:
    # torch's public function takes a causal flag or a mask, not both, and would have us write out B matrices T×S.
    # The kernel underneath takes both.
    H = query_BHTK.size(1)
    additive = torch.zeros(allowed.shape, dtype=query_BHTK.dtype, device=query_BHTK.device).masked_fill_(
        ~allowed, -torch.inf
    )
    output: Tensor
    output, _ = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query_BHTK.contiguous(),
        repeat_heads(key_BGSK, H).contiguous(),
        repeat_heads(value_BGSV, H).contiguous(),
        0.0,
        True,
        attn_mask=additive,
        scale=scale,
    )
    return output


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
    """Scaled dot-product attention, softmax(QKᵀ/√d_k + M)V.

    >>> import torch, regard
    >>> X = torch.tensor([[1.0, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]])  # three tokens
    >>> output, weights = regard.attention(X, X, X, return_weights=True)
    >>> weights
    tensor([[0.5065, 0.1863, 0.3072],
            [0.1863, 0.5065, 0.3072],
            [0.2741, 0.2741, 0.4519]])

    Queries are (T, K), (B, T, K) or (B, H, T, K), keys (…, S, K) and values (…, S, V); K and V may differ, and there
    may be fewer key and value heads than query heads, as long as these divide. `mask` is boolean, True = may attend,
    and broadcasts to the scores (…, T, S); `causal` adds the left-to-right mask; `bias` is the additive M. `scale` is
    1/√K unless given. A query that may attend to nothing gets zeros. With `return_weights` the weights come too, as
    they are before dropout.
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
    if return_weights or (dropout > 0.0 and query.device.type == "cpu") or _is_transformed():
        output_BHTV, weights_BHTS = reference_attention(
            query_BHTK, key_BGSK, value_BGSV, described, bias, scale=scale, dropout=dropout
        )
        output = _without_heads(output_BHTV, rank)
        return (output, _without_heads(weights_BHTS, rank)) if return_weights else output
    fused_BHTV = fused_attention(query_BHTK, key_BGSK, value_BGSV, described, bias, scale=scale, dropout=dropout)
    if fused_BHTV.requires_grad and dropout == 0.0 and not torch.compiler.is_compiling():
        fused_BHTV = _TwiceDifferentiable.apply(fused_BHTV, query_BHTK, key_BGSK, value_BGSV, bias, described, scale)  # type: ignore[no-untyped-call]
    return _without_heads(fused_BHTV, rank)


class _TwiceDifferentiable(torch.autograd.Function):
    """The output of the fused kernel as it is, with a backward pass that has a gradient in its turn.

    Fused kernels have none. So where gradients are to be differentiated (`create_graph=True`), they come from the
    reference path; else they go on to the kernel.
    """

    @staticmethod
    def forward(
        ctx: Any,
        output_BHTV: Tensor,
        query_BHTK: Tensor,
        key_BGSK: Tensor,
        value_BGSV: Tensor,
        bias: Tensor | None,
        mask: Mask | None,
        scale: float,
    ) -> Tensor:
        ctx.save_for_backward(query_BHTK, key_BGSK, value_BGSV, bias)
        ctx.mask, ctx.scale = mask, scale
        return output_BHTV.view_as(output_BHTV)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (grad_BHTV,) = grad_outputs
        if not torch.is_grad_enabled():
            return grad_BHTV, *(None,) * 6
        # Each as a tensor of its own: where one is computed from another, gradients would be counted twice.
        inputs: list[Any] = [None if x is None else x.view_as(x) for x in ctx.saved_tensors]
        query, key, value, bias = inputs
        output_BHTV, _ = reference_attention(query, key, value, ctx.mask, bias, scale=ctx.scale)
        needed = ctx.needs_input_grad[1:5]
        wanted = [x for x, is_needed in zip(inputs, needed, strict=True) if is_needed]
        found = iter(torch.autograd.grad(output_BHTV, wanted, grad_BHTV.to(output_BHTV.dtype), create_graph=True))
        return None, *(next(found) if is_needed else None for is_needed in needed), None, None


def _is_transformed() -> bool:
    """Whether `torch.func` or forward-mode AD transforms what is computed: the fused kernels have no rules for that."""
    return bool(torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0)


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
