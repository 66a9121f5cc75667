"""Scaled dot-product attention (Vaswani et al. 2017, §3.2.1).

Attention(Q, K, V) = softmax(QKᵀ/√d_k + M) V
"""

import math
from typing import Any, Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.devices import in_full_precision
from regard.errors import InputError
from regard.ops.dropout import checked_rate
from regard.ops.dropout import dropout as apply_dropout
from regard.ops.masks import Causal, Mask, as_mask, broadcast_to_scores, fitted_mask, kernel_mask


def reference_attention(
    query_BHTK: Tensor, key_BGSK: Tensor, value_BGSV: Tensor, M: Mask | Tensor | None, scale: float, dropout: float
) -> tuple[Tensor, Tensor]:
    """Attention step by step; returns the output BHTV and the weights BHTS, as they are before dropout."""
    scores_BHTS = attention_scores(query_BHTK, key_BGSK, scale)
    weights_BHTS = masked_softmax(scores_BHTS, M).to(query_BHTK.dtype)
    output_BHTV = apply_dropout(weights_BHTS, dropout) @ repeat_heads(value_BGSV, query_BHTK.size(1))
    return output_BHTV, weights_BHTS


def attention_scores(query_BHTK: Tensor, key_BGSK: Tensor, scale: float | Tensor) -> Tensor:
    """Compare every query with every key: QKᵀ · scale, of shape BHTS, in float32 at least: half would overflow."""
    key_BHSK = repeat_heads(key_BGSK, query_BHTK.size(1))
    precision = torch.promote_types(query_BHTK.dtype, torch.float32)
    with in_full_precision(query_BHTK.device):
        return (query_BHTK.to(precision) * scale) @ key_BHSK.to(precision).mT


def masked_softmax(scores_BHTS: Tensor, M: Mask | Tensor | None = None) -> Tensor:
    """Softmax over the keys that a query may attend to, by a mask or an additive M, which is -∞ elsewhere.

    A query that may attend to nothing gets weights of zero, and gradients of zero, where the plain softmax is 0/0.
    """
    (T, S), M = scores_BHTS.shape[2:], as_mask(M) if isinstance(M, Tensor) and M.dtype == torch.bool else M
    if isinstance(M, Mask):
        scores_BHTS = scores_BHTS.masked_fill(~M.dense(T, S, scores_BHTS.device), -torch.inf)
    elif M is not None:
        scores_BHTS = (scores_BHTS + M).masked_fill(M.isneginf(), -torch.inf)
    if S == 0:
        return scores_BHTS
    nothing_BHT1 = scores_BHTS.detach().amax(-1, keepdim=True) == -torch.inf
    return scores_BHTS.masked_fill(nothing_BHT1, 0.0).softmax(-1).masked_fill(nothing_BHT1, 0.0)


def centered_bias(bias: Tensor, allowed: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return M: the bias less its largest value for each query, -∞ where the query may not attend.

    A softmax does not change when a row is shifted, but a row of large numbers would swallow the scores that it is
    added to. The shift comes before the rounding to the scores' type, so that no row becomes -∞ by overflow.
    """
    bias = bias.to(torch.promote_types(bias.dtype, torch.float32))
    if allowed is not None:
        bias = bias.masked_fill(~allowed, -torch.inf)
    if bias.size(-1) == 0:
        return bias.to(dtype)
    largest = bias.detach().amax(-1, keepdim=True)
    return (bias - largest.masked_fill(largest == -torch.inf, 0.0)).to(dtype)


def repeat_heads(x_BGSK: Tensor, H: int) -> Tensor:
    """Repeat each key or value head for the neighboring query heads that share it: BGSK to BHSK."""
    G = x_BGSK.size(1)
    return x_BGSK if G == H else x_BGSK.repeat_interleave(H // G, dim=1)


def fused_attention(
    query_BHTK: Tensor, key_BGSK: Tensor, value_BGSV: Tensor, M: Mask | Tensor | None, scale: float, dropout: float
) -> Tensor:
    """Attention by torch's fused kernel, which does not materialize the scores; returns the output BHTV."""
    (_, H, T, K), (_, G, S, V) = query_BHTK.shape, value_BGSV.shape
    if query_BHTK.numel() == 0 or value_BGSV.numel() == 0:  # the kernels divide by their sizes
        return reference_attention(query_BHTK, key_BGSK, value_BGSV, M, scale, 0.0)[0]
    if scale <= 0.0:  # the causal kernels multiply the -∞ of what is masked by the scale
        query_BHTK, scale = query_BHTK * scale, 1.0
    if K != V:  # the kernels want one width; zeros widen the narrower without changing any product
        widened = (F.pad(x, (0, max(K, V) - x.size(3))) for x in (query_BHTK, key_BGSK, value_BGSV))
        query_BHTK, key_BGSK, value_BGSV = widened
    on_cpu = query_BHTK.device.type == "cpu"
    causal, allowed = (False, M) if isinstance(M, Tensor) else kernel_mask(M, T, S, query_BHTK.device)
    if isinstance(M, Mask) and causal and allowed is not None:
        if on_cpu and dropout == 0.0:
            return _causal_and_masked_on_cpu(query_BHTK, key_BGSK, value_BGSV, allowed, scale)[..., :V]
        causal, allowed = False, M.dense(T, S, query_BHTK.device)
    nothing = None
    if allowed is not None and not on_cpu:
        allowed, nothing = open_empty_rows(allowed, query_BHTK.dtype)
    output_BHTV = F.scaled_dot_product_attention(
        query_BHTK, key_BGSK, value_BGSV, allowed, dropout, causal, scale=scale, enable_gqa=H != G
    )[..., :V]
    return output_BHTV if nothing is None else output_BHTV.masked_fill(nothing, 0.0)


def open_empty_rows(allowed: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Open the rows of queries that may attend to nothing; also return which they are, to zero their output.

    Unlike the CPU's, other devices' kernels promise no zeros there, and want an additive mask in the query's type.
    """
    if allowed.dtype == torch.bool:
        nothing = ~allowed.any(-1, keepdim=True)
        return allowed | nothing, nothing
    nothing = allowed.isneginf().all(-1, keepdim=True)
    return allowed.masked_fill(nothing, 0.0).to(dtype), nothing


def _causal_and_masked_on_cpu(
    query_BHTK: Tensor, key_BGSK: Tensor, value_BGSV: Tensor, allowed: Tensor, scale: float
) -> Tensor:
    # torch's public function takes a causal flag or a mask, not both, and would have us write out B matrices T×S.
    # The kernel underneath takes both.
    inputs = (query_BHTK, *(repeat_heads(x, query_BHTK.size(1)) for x in (key_BGSK, value_BGSV)))
    additive = query_BHTK.new_zeros(allowed.shape).masked_fill_(~allowed, -torch.inf)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    output: Tensor = kernel(*(x.contiguous() for x in inputs), 0.0, True, attn_mask=additive, scale=scale)[0]
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
    scale: float | Tensor | None = None,
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
    scale: float | Tensor | None = None,
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
    scale: float | Tensor | None = None,
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
    1/√K unless given; a tensor multiplies the queries, so that it may be learned. A query that may attend to nothing
    gets zeros. With `return_weights` the weights come too, as they are before dropout.
    """
    if isinstance(scale, Tensor):
        query, scale = (query * scale).to(query.dtype), 1.0
    _check_shapes(query, key, value)
    checked_rate(dropout)
    scale = max(query.size(-1), 1) ** -0.5 if scale is None else scale
    if not math.isfinite(scale):
        raise InputError(f"scale is {scale}; scores are multiplied by it, so it must be finite")
    rank, device = query.dim(), query.device
    with_heads = (x if rank == 4 else x[None, None] if rank == 2 else x[:, None] for x in (query, key, value))
    query_BHTK, key_BGSK, value_BGSV = with_heads
    BHTS = (*query_BHTK.shape[:3], key_BGSK.size(2))
    M: Any = None if mask is None else fitted_mask(as_mask(mask), BHTS, rank, device)
    if causal:
        M = Causal() if M is None else M & Causal()
    if bias is not None:
        if not bias.is_floating_point():
            raise InputError(f"a bias is added to the scores, got {bias.dtype}; pass a boolean mask as mask=")
        bias = broadcast_to_scores(bias, "bias", BHTS, rank, device)
        allowed = None if M is None else M.dense(*BHTS[2:], device)
        M = centered_bias(bias, allowed, torch.promote_types(query.dtype, torch.float32))

    # The fused kernels have no dropout on the CPU, and no rules for `torch.func` and forward-mode AD.
    transformed = torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0
    if return_weights or (dropout > 0.0 and device.type == "cpu") or transformed:
        output_BHTV, weights_BHTS = reference_attention(query_BHTK, key_BGSK, value_BGSV, M, scale, dropout)
        output = _without_heads(output_BHTV, rank)
        return (output, _without_heads(weights_BHTS, rank)) if return_weights else output
    output_BHTV = fused_attention(query_BHTK, key_BGSK, value_BGSV, M, scale, dropout)
    if output_BHTV.requires_grad and dropout == 0.0 and not torch.compiler.is_compiling():
        output_BHTV = _TwiceDifferentiable.apply(output_BHTV, query_BHTK, key_BGSK, value_BGSV, M, scale)  # type: ignore[no-untyped-call]
    return _without_heads(output_BHTV, rank)


class _TwiceDifferentiable(torch.autograd.Function):
    """The fused kernel's output, with a differentiable backward pass.

    Fused kernels have none. So where gradients are to be differentiated (`create_graph=True`), they come from the
    reference path; else they go on to the kernel.
    """

    @staticmethod
    def forward(ctx: Any, output_BHTV: Tensor, *inputs: Any) -> Tensor:
        *tensors, M, ctx.scale = inputs
        ctx.mask, bias = (None, M) if isinstance(M, Tensor) else (M, None)
        ctx.save_for_backward(*tensors, bias)
        return output_BHTV.view_as(output_BHTV)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (grad_BHTV,) = grad_outputs
        if not torch.is_grad_enabled():
            return grad_BHTV, *(None,) * 5
        # Each as a tensor of its own: where one is computed from another, gradients would be counted twice.
        inputs: list[Any] = [None if x is None else x.view_as(x) for x in ctx.saved_tensors]
        query, key, value, bias = inputs
        output_BHTV, _ = reference_attention(query, key, value, ctx.mask if bias is None else bias, ctx.scale, 0.0)
        needed = ctx.needs_input_grad[1:5]
        wanted = [x for x, is_needed in zip(inputs, needed, strict=True) if is_needed]
        found = iter(torch.autograd.grad(output_BHTV, wanted, grad_BHTV.to(output_BHTV.dtype), create_graph=True))
        return None, *(next(found) if is_needed else None for is_needed in needed), None


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
    elif not (query.is_floating_point() and query.dtype == key.dtype == value.dtype):
        types = f"{query.dtype}, {key.dtype} and {value.dtype}"
        problem = f"query, key and value must be of one floating-point type, not {types}"
    elif not query.device == key.device == value.device:
        problem = f"query, key and value must be on one device, not {query.device}, {key.device} and {value.device}"
    else:
        return
    raise InputError(f"{problem}; got query {tuple(q)}, key {tuple(k)}, value {tuple(v)}")
