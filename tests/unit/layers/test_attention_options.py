"""QK-norm, soft-capping and the scale of scores, against their formulas."""

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from regard import InputError, MultiHeadAttention, TransformerConfig
from regard.layers import AttentionParts, KeyValue, RMSNorm, softmax_attention
from regard.layers.patterns import SlidingWindow
from regard.layers.positions import ALiBi, RotaryPositions
from regard.model.build_attention import build_attention

D, H, G, K, V = 6, 4, 2, 3, 5


def by_formula(layer: MultiHeadAttention, x: Tensor, allowed: Tensor, cap: float | None, scale: float) -> Tensor:
    """One head and one query at a time."""
    B, T, _ = x.shape
    heads = []
    for h in range(H):
        g = h // (H // G)
        q = x @ layer.query.weight[h * K : (h + 1) * K].T + layer.query.bias[h * K : (h + 1) * K]
        k = x @ layer.key.weight[g * K : (g + 1) * K].T + layer.key.bias[g * K : (g + 1) * K]
        v = x @ layer.value.weight[g * V : (g + 1) * V].T + layer.value.bias[g * V : (g + 1) * V]
        if layer.query_norm is not None and layer.key_norm is not None:
            q, k = (
                y / (y.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight  # type: ignore[operator]
                for y, norm in ((q, layer.query_norm), (k, layer.key_norm))
            )
        rows = []
        for b in range(B):
            for t in range(T):
                seen = allowed[b, t].nonzero().flatten()
                scores = (k[b, seen] @ q[b, t]) * scale
                scores = scores if cap is None else cap * torch.tanh(scores / cap)
                rows.append(scores.softmax(0) @ v[b, seen] if len(seen) else torch.zeros(V, dtype=x.dtype))
        heads.append(torch.stack(rows).view(B, T, V))
    return torch.cat(heads, dim=-1) @ layer.output.weight.T + layer.output.bias


@given(
    st.booleans(), st.sampled_from([None, 0.5, 30.0]), st.sampled_from([None, 1.0]), st.booleans(), st.integers(0, 99)
)
def test_outputs_and_gradients_are_those_of_the_formula(
    qk_norm: bool, cap: float | None, scale: float | None, in_blocks: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    norms: dict[str, Any] = dict(query_norm=RMSNorm(K, eps=1e-3), key_norm=RMSNorm(K, eps=1e-3)) if qk_norm else {}
    parts = AttentionParts(softcap=cap, scale=scale, **norms)
    layer = MultiHeadAttention(D, H, K, V, G, parts=parts).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, 7, D, dtype=torch.float64, requires_grad=True)
    allowed = torch.rand(2, 7, 7) < 0.6
    with pytest.MonkeyPatch.context() as patch:
        if in_blocks:
            patch.setattr(softmax_attention, "_DENSE", 0)
            patch.setattr(softmax_attention, "_BLOCK", 3)
        found = layer(x, mask=allowed[:, None])
        inputs = [x, *layer.parameters()]
        gradients = torch.autograd.grad(found.pow(2).sum(), inputs)
    expected = by_formula(layer, x, allowed, cap, K**-0.5 if scale is None else scale)
    torch.testing.assert_close(found, expected)
    references = torch.autograd.grad(expected.pow(2).sum(), inputs)
    for gradient, reference in zip(gradients, references, strict=True):
        torch.testing.assert_close(gradient, reference)


def test_weights_are_those_of_the_capped_scores() -> None:
    layer = MultiHeadAttention(D, 1, parts=AttentionParts(softcap=0.1)).double()
    x = 100 * torch.randn(1, 5, D, dtype=torch.float64)
    _, weights = layer(x, return_weights=True)
    assert (weights.amax(-1) / weights.amin(-1)).max() <= math.exp(0.2) + 1e-9


def test_the_switches_are_in_the_configuration() -> None:
    config = TransformerConfig.preset(
        "tiny", vocab_size=9, norm_eps=1e-3, attention={"qk_norm": True, "softcap": 20.0, "scale": 1.0}
    )
    for role in ("encoder", "decoder", "cross"):
        layer = build_attention(config, role, 0)
        assert layer.variations() == ["query_norm", "key_norm", "softcap", "scale"]
        assert (layer.softcap, layer.scale) == (20.0, 1.0)
        assert isinstance(layer.query_norm, RMSNorm)
        assert layer.query_norm.weight is not layer.key_norm.weight  # type: ignore[union-attr]
        assert layer.query_norm.eps == 1e-3


@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("cap", [None, 2.0])
def test_a_learned_scale_learns(per_head: bool, cap: float | None) -> None:
    """A tensor is no plain scale, whatever its value; it multiplies the queries, in every way to compute attention."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(8, 4, parts=AttentionParts(softcap=cap)).double()
    expected = copy.deepcopy(layer)
    scale = torch.linspace(0.3, 0.9, H).double()[:, None, None] if per_head else torch.tensor(2**-0.5).double()
    layer.scale = nn.Parameter(scale)
    assert layer.variations()[-1] == "scale"
    with torch.no_grad():
        for projected in (expected.query.weight, expected.query.bias):
            projected.view(H, 2, -1).mul_(scale * 2**0.5)
    x = torch.randn(2, 5, 8).double()
    wanted, weights = expected(x, causal=True, return_weights=True)
    output = layer(x, causal=True)
    torch.testing.assert_close(output, wanted)
    torch.testing.assert_close(layer(x, causal=True, return_weights=True), (wanted, weights))
    output.square().sum().backward()
    assert isinstance(layer.scale, nn.Parameter)
    assert layer.scale.grad is not None
    assert layer.scale.grad.shape == scale.shape
    assert layer.scale.grad.abs().min() > 0
    cache = layer.start_cache()
    torch.testing.assert_close(torch.cat([layer(x[:, t : t + 1], cache=cache) for t in range(5)], dim=1), wanted)


class OwnSoftmax(MultiHeadAttention):
    """Attention that computes its heads by itself, without what varies them."""

    def heads(
        self, query_BHTK: Tensor, key_value: KeyValue, mask: Any, bias: Any, return_weights: Any = False, **_: Any
    ) -> Any:
        weights_BHTS = (query_BHTK @ key_value.key_BGSK.mT * self.scale).softmax(-1)
        return weights_BHTS @ key_value.value_BGSV, None


class PassesOn(MultiHeadAttention):
    def heads(self, *arguments: Any, **options: Any) -> Any:
        heads_BHTV, weights_BHTS = super().heads(*arguments, **options)
        return 2 * heads_BHTV, weights_BHTS


class TakesPlacement(OwnSoftmax):
    def heads(self, *arguments: Any, at: Any = None, **options: Any) -> Any:
        return super().heads(*arguments, **options)


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        (AttentionParts(positions=ALiBi(H)), "positions"),
        (AttentionParts(pattern=SlidingWindow(2)), "pattern"),
        (AttentionParts(softcap=2.0, pattern=SlidingWindow(2)), "pattern and softcap"),
    ],
)
def test_heads_that_leave_out_parts_of_their_layer_are_refused(parts: AttentionParts, named: str) -> None:
    x = torch.randn(1, 4, 8)
    with pytest.raises(
        InputError, match=rf"OwnSoftmax.heads leaves out this layer's {named}; it passes its options on"
    ):
        OwnSoftmax(8, H, parts=parts)(x)
    layer, plain = PassesOn(8, H, parts=parts), MultiHeadAttention(8, H, parts=parts)
    plain.load_state_dict(layer.state_dict())
    bias = layer.output.bias
    torch.testing.assert_close(layer(x) - bias, 2 * (plain(x) - bias))
    TakesPlacement(8, H, parts=parts)(x)


@pytest.mark.parametrize("parts", [AttentionParts(positions=RotaryPositions(2)), AttentionParts(scale=0.3), None])
def test_heads_need_no_parts_that_the_projections_apply(parts: AttentionParts | None) -> None:
    layer, plain = OwnSoftmax(8, H, parts=parts), MultiHeadAttention(8, H, parts=parts)
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(1, 4, 8)
    torch.testing.assert_close(layer(x), plain(x))


def test_qk_norms_that_autocast_has_in_float32_go_with_values_in_half_precision() -> None:
    layer = MultiHeadAttention(16, 2, parts=AttentionParts(query_norm=_Wide(), key_norm=_Wide()))
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(1, 3, 16), causal=True).dtype == torch.bfloat16


class _Wide(nn.Module):
    """Stands for the norms that autocast computes in float32 on a GPU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.float()
