"""The same attention in one kernel: no matrix of scores is ever written to memory."""

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.ops.explicit import centered_bias, explicit_attention, repeat_heads
from regard.ops.masks import Causal, Mask, kernel_mask, sentences_alone
from regard.ops.short import are_short, is_short, short_attention


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
    """Give the output BHTV of softmax(QKᵀ·scale + M)V by torch's fused kernel, or by ours for short sequences."""
    if query_BHTK.numel() == 0 or value_BGSV.numel() == 0:  # the kernels divide by their sizes
        return explicit_attention(query_BHTK, key_BGSK, value_BGSV, mask, bias, scale=scale)[0]
    if scale <= 0.0:  # the causal kernels multiply the -∞ of what is masked by the scale
        query_BHTK, scale = query_BHTK * scale, 1.0
    causal, sentences = sentences_alone(mask)
    bare = bias is None and dropout == 0.0
    if bare and sentences is not None and are_short(query_BHTK, key_BGSK, value_BGSV, causal, sentences):
        return short_attention(query_BHTK, key_BGSK, value_BGSV, causal, sentences, scale)
    T, S, V = query_BHTK.size(2), value_BGSV.size(2), value_BGSV.size(3)
    causal, allowed = kernel_mask(mask, T, S, query_BHTK.device)
    if bare and is_short(query_BHTK, key_BGSK, value_BGSV, causal, allowed):
        return short_attention(query_BHTK, key_BGSK, value_BGSV, causal, allowed, scale)
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
    """Let queries that may see nothing see everything, and say which they are, so that their output can be zeroed.

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
