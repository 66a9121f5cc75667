"""Attention over short sequences by a kernel."""

import torch
from torch import Tensor

from regard.acceleration.known import register_replacement
from regard.acceleration.short_attention import fits_kernel, fits_varlen, short_attention
from regard.acceleration.varlen import varlen_part
from regard.layers import KeyValue, MultiHeadAttention
from regard.layers.softmax_attention import Placement
from regard.ops import Mask
from regard.ops.masks import as_mask, fitted_mask, kernel_mask


@register_replacement
class ShortSequenceAttention(MultiHeadAttention):
    """Attention between up to 64 positions by a kernel, forward and backward; longer ones as `MultiHeadAttention`.

    Where bfloat16 is chosen by autocast, attention itself stays float32: the fused kernel's backward pass is very slow
    in bfloat16 on CPUs.
    """

    def heads(
        self,
        query_BHTK: Tensor,
        key_value: KeyValue,
        mask: Mask | Tensor | None,
        bias: Tensor | None,
        return_weights: bool = False,
        *,
        at: Placement | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the outputs BHTV of all heads, and their weights BHTS if asked for."""
        if at is not None:
            return super().heads(query_BHTK, key_value, mask, bias, return_weights, at=at)
        if return_weights:
            return super().heads(query_BHTK, key_value, mask, bias, return_weights)
        device = query_BHTK.device.type
        if device == "cpu" and torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):
                single = KeyValue(*(x.float() for x in key_value))
                return self.heads(query_BHTK.float(), single, mask, bias)
        if bias is None and (self.dropout == 0.0 or not self.training):
            output_BHTV = _by_kernel(query_BHTK, *key_value, mask)
            if output_BHTV is not None:
                return output_BHTV, None
        return super().heads(query_BHTK, key_value, mask, bias)


def _by_kernel(query_BHTK: Tensor, key_BGSK: Tensor, value_BGSV: Tensor, mask: Mask | Tensor | None) -> Tensor | None:
    """Return the output BHTV, or None where the kernel does not take these."""
    if query_BHTK.numel() == 0 or value_BGSV.numel() == 0:
        return None
    scale, device = query_BHTK.size(-1) ** -0.5, query_BHTK.device
    BHTS = (*query_BHTK.shape[:3], key_BGSK.size(2))
    fitted = None if mask is None else fitted_mask(as_mask(mask), BHTS, 4, device)
    causal, sequences = varlen_part(fitted)
    if sequences is not None:
        if not fits_varlen(query_BHTK, key_BGSK, value_BGSV, causal, sequences):
            return None
        return short_attention(query_BHTK, key_BGSK, value_BGSV, causal, sequences, scale)
    if max(BHTS[2:]) > 64:
        return None
    causal, allowed = kernel_mask(fitted, BHTS[2], BHTS[3], device)
    if not fits_kernel(query_BHTK, key_BGSK, value_BGSV, causal, allowed):
        return None
    return short_attention(query_BHTK, key_BGSK, value_BGSV, causal, allowed, scale)
