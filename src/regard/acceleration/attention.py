"""Attention by a kernel: over short sequences, and over long ones with a window or a bias by distance."""

import torch
from torch import Tensor

from regard.acceleration.changed_classes import has_changed_functions, has_plain_method
from regard.acceleration.kernel_attention import (
    BIAS_END,
    fits_kernel,
    fits_tiles,
    fits_varlen,
    kernel_attention,
)
from regard.acceleration.known import reference_type, register_replacement
from regard.acceleration.known_classes import KERNEL_PARTS
from regard.acceleration.varlen import varlen_part
from regard.kernels.dispatch import is_traced
from regard.layers import KeyValue, MultiHeadAttention
from regard.layers.patterns import SlidingWindow
from regard.layers.softmax_attention import Placement
from regard.ops import Mask
from regard.ops.masks import as_mask, fitted_mask, kernel_mask


@register_replacement
class KernelAttention(MultiHeadAttention):
    """Attention by a kernel, forward and backward; what the kernel does not take as `MultiHeadAttention` computes it.

    The kernel takes up to 64 positions, and more with a sliding window or with the biases of T5 and ALiBi. Where
    bfloat16 is chosen by autocast, attention itself stays float32: the fused kernel's backward pass is very slow in
    bfloat16 on CPUs.
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
        is_plain = has_plain_method(MultiHeadAttention, "heads") and (is_traced() or not has_changed_functions())
        if return_weights or not is_plain:
            return super().heads(query_BHTK, key_value, mask, bias, return_weights, at=at)
        device = query_BHTK.device.type
        if device == "cpu" and torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):
                single = KeyValue(*(x.float() for x in key_value))
                return self.heads(query_BHTK.float(), single, mask, bias, at=at)
        if bias is None and (self.dropout == 0.0 or not self.training):
            if at is None:
                output_BHTV = _by_kernel(query_BHTK, *key_value, mask)
            else:
                output_BHTV = self._varied_by_kernel(query_BHTK, key_value, mask, at)
            if output_BHTV is not None:
                return output_BHTV, None
        return super().heads(query_BHTK, key_value, mask, bias, at=at)

    def _varied_by_kernel(
        self, query_BHTK: Tensor, key_value: KeyValue, mask: Mask | Tensor | None, at: Placement
    ) -> Tensor | None:
        """Return the output BHTV of attention with parts, or None where the kernel does not take these."""
        T, S, device = query_BHTK.size(2), key_value.key_BGSK.size(2), query_BHTK.device
        if is_traced() or device.type != "cpu" or T != S or query_BHTK.numel() == 0 or not self._has_kernel(at):
            return None
        window = self.pattern.size if isinstance(self.pattern, SlidingWindow) else 0
        bias_HL = None
        if self.positions is not None and self.positions.adds_bias:
            distance_L = torch.arange(1 - T, T + BIAS_END, device=device)
            bias_HL = self.positions.bias(query_BHTK, distance_L.new_zeros(1), distance_L)[0, :, 0]
        if not fits_tiles(query_BHTK, key_value, window, bias_HL):
            return None
        fitted = None if mask is None else fitted_mask(as_mask(mask), (*query_BHTK.shape[:3], S), 4, device)
        causal, allowed = kernel_mask(fitted, T, S, device)
        if allowed is not None and allowed.shape[1:3] != (1, 1):
            return None
        return kernel_attention(query_BHTK, *key_value, causal, allowed, self.scale, window, bias_HL)

    def _has_kernel(self, at: Placement) -> bool:
        """Whether the kernel knows all parts, and queries and keys stand side by side in one sequence."""
        parts = [part for part in (self.positions, self.pattern) if part is not None]
        return (
            self.kind is None
            and self.softcap is None
            and isinstance(self.scale, int | float)
            and all(reference_type(part, KERNEL_PARTS) is not None for part in parts)
            and (not isinstance(self.pattern, SlidingWindow) or (self.pattern.size > 0 and self.pattern.sinks == 0))
            and at.query_index is at.query_positions
            and at.key_index is at.key_positions
            and at.query_index.dim() == at.key_index.dim() == 1
            and torch.equal(at.query_index, at.key_index)
        )


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
        return kernel_attention(query_BHTK, key_BGSK, value_BGSV, causal, sequences, scale)
    if max(BHTS[2:]) > 64:
        return None
    causal, allowed = kernel_mask(fitted, BHTS[2], BHTS[3], device)
    if not fits_kernel(query_BHTK, key_BGSK, value_BGSV, causal, allowed):
        return None
    return kernel_attention(query_BHTK, key_BGSK, value_BGSV, causal, allowed, scale)
