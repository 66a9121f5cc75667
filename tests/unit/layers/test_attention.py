import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.errors import InputError
from regard.layers import AttentionParts, KeyValueCache, MultiHeadAttention, softmax_attention


@given(
    st.sampled_from([(2, 2), (4, 2), (4, 1)]),
    st.integers(1, 4),
    st.integers(1, 4),
    st.booleans(),
    st.integers(0, 1000),
)
def test_heads_are_those_of_the_paper(heads: tuple[int, int], d_k: int, d_v: int, causal: bool, seed: int) -> None:
    """Concat(head_1, …, head_H) W_O, each head computed by itself from its own columns of W_Q, W_K and W_V."""
    torch.manual_seed(seed)
    H, G = heads
    layer = regard.MultiHeadAttention(6, H, d_k, d_v, G).double()
    x, memory = torch.randn(2, 3, 6).double(), torch.randn(2, 3, 6).double()
    outputs = []
    for h in range(H):
        g = h // (H // G)
        Q = x @ layer.query.weight[h * d_k : (h + 1) * d_k].T + layer.query.bias[h * d_k : (h + 1) * d_k]
        K = memory @ layer.key.weight[g * d_k : (g + 1) * d_k].T + layer.key.bias[g * d_k : (g + 1) * d_k]
        V = memory @ layer.value.weight[g * d_v : (g + 1) * d_v].T + layer.value.bias[g * d_v : (g + 1) * d_v]
        scores = Q @ K.mT / math.sqrt(d_k)
        if causal:
            scores = scores + torch.full((3, 3), -math.inf).triu(1)
        outputs.append(scores.softmax(-1) @ V)
    expected = torch.cat(outputs, dim=-1) @ layer.output.weight.T + layer.output.bias
    torch.testing.assert_close(layer(x, memory, causal=causal), expected)
    output, weights = layer(x, memory, causal=causal, return_weights=True)
    torch.testing.assert_close(output, expected)
    assert weights.shape == (2, H, 3, 3)


def test_torch_gives_the_same_where_it_can() -> None:
    ours = regard.MultiHeadAttention(8, 2)
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    with torch.no_grad():
        projections = (ours.query, ours.key, ours.value)
        theirs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        theirs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
        theirs.out_proj.load_state_dict(ours.output.state_dict())
    x = torch.randn(3, 5, 8)
    mask = regard.causal_mask(5)
    expected, weights = theirs(x, x, x, attn_mask=~mask, average_attn_weights=False)
    output, ours_weights = ours(x, mask=mask, return_weights=True)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(ours_weights, weights)


def test_values_come_from_the_key_unless_given() -> None:
    layer = regard.MultiHeadAttention(8, 2)
    x, key, value = torch.randn(3, 2, 4, 8)
    assert layer(x).equal(layer(x, x, x))
    assert layer(x, key).equal(layer(x, key, key))
    assert not layer(x, key, value).equal(layer(x, key))


def test_a_mask_and_a_cache_go_together() -> None:
    layer = regard.MultiHeadAttention(8, 2, num_kv_heads=1).eval()
    x = torch.randn(2, 6, 8)
    hidden = torch.ones(2, 1, 1, 6, dtype=torch.bool)
    hidden[0, ..., 1] = False
    cache = KeyValueCache()
    steps = [layer(x[:, t : t + 1], mask=hidden[..., : t + 1], cache=cache) for t in range(6)]
    torch.testing.assert_close(torch.cat(steps, dim=1), layer(x, mask=hidden, causal=True))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((10, 4), "d_model 10 is not divisible by num_heads 4"),
        ((8, 4, None, None, 3), "num_heads 4 is not divisible by num_kv_heads 3"),
        ((8, 4, None, None, 0), "num_kv_heads 0"),
        ((8, 0), "num_heads is 0"),
        ((8, 4, 0), "d_k is 0"),
    ],
)
def test_sizes_that_do_not_fit_are_told(arguments: tuple, says: str) -> None:
    with pytest.raises(InputError, match=says):
        regard.MultiHeadAttention(*arguments)


def test_a_wrong_width_is_told() -> None:
    layer = regard.MultiHeadAttention(8, 2)
    with pytest.raises(InputError, match=r"query has shape \(2, 3, 7\).*8"):
        layer(torch.randn(2, 3, 7), torch.randn(2, 3, 8))
    with pytest.raises(InputError, match=r"key has shape \(3, 8\)"):
        layer(torch.randn(3, 8))


def test_an_additive_mask_goes_in_as_bias() -> None:
    layer = regard.MultiHeadAttention(8, 2)
    x = torch.randn(2, 4, 8)
    M = torch.zeros(4, 4).masked_fill(~regard.causal_mask(4), -math.inf)
    torch.testing.assert_close(layer(x, bias=M), layer(x, causal=True))
    with pytest.raises(InputError, match="bias="):
        layer(x, mask=M)


def test_a_refused_call_leaves_the_cache_as_it_was() -> None:
    layer, cache, x = regard.MultiHeadAttention(8, 2).eval(), KeyValueCache(), torch.randn(1, 2, 8)
    layer(x, cache=cache)
    for wrong in (dict(mask=torch.ones(9, 9).bool()), dict(bias=torch.ones(9, 9)), dict(query=torch.randn(1, 2, 7))):
        with pytest.raises(InputError):
            layer(wrong.pop("query", x), x, cache=cache, **wrong)
        assert cache.lengths.tolist() == [2]


class WithoutFirstHead(regard.MultiHeadAttention):
    """Attention whose first head is silent."""

    def heads(
        self, query_BHTK: torch.Tensor, *arguments: Any, **options: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        heads_BHTV, weights_BHTS = super().heads(query_BHTK, *arguments, **options)
        return heads_BHTV * (torch.arange(self.num_heads) > 0)[:, None, None], weights_BHTS


def test_changed_heads_give_the_same_output_with_and_without_weights() -> None:
    layer, x = WithoutFirstHead(8, 2), torch.randn(3, 5, 8)
    output, weights = layer(x, return_weights=True)
    torch.testing.assert_close(layer(x), output)
    assert weights.shape == (3, 2, 5, 5)
    with torch.no_grad():
        layer.output.weight[:, 4:] = 0  # what is left comes from the first head
    torch.testing.assert_close(layer(x, return_weights=True)[0], layer.output.bias.expand(3, 5, 8))


def test_soft_capped_attention_to_a_longer_source_is_computed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    layer = MultiHeadAttention(16, 4, parts=AttentionParts(softcap=2.0)).double()
    x, memory = torch.randn(2, 5, 16, dtype=torch.float64), torch.randn(2, 23, 16, dtype=torch.float64)
    whole = layer(x, memory)
    monkeypatch.setattr(softmax_attention, "_DENSE", 0)
    monkeypatch.setattr(softmax_attention, "_BLOCK", 4)
    torch.testing.assert_close(layer(x, memory), whole)
    torch.testing.assert_close(layer(x, cache=layer.start_source_cache(memory)), whole)
