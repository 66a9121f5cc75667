from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.errors import InputError
from regard.layers.kv_cache import KeyValue
from regard.layers.softmax_attention import Placement, SoftmaxAttention
from regard.ops import Causal, KeyLengths, Mask, attention
from regard.ops.masks import And, kernel_mask

CPU = torch.device("cpu")


@given(st.integers(0, 8), st.integers(0, 8))
def test_causal_masks_are_aligned_to_the_end(T: int, S: int) -> None:
    mask = regard.causal_mask(T, S)
    assert mask.shape == (T, S)
    assert mask.dtype == torch.bool
    for t in range(T):
        for s in range(S):
            assert mask[t, s].item() == (s <= t + S - T)


def test_a_causal_mask_is_square_unless_told() -> None:
    assert regard.causal_mask(3).equal(torch.ones(3, 3).tril().bool())


def test_padding_is_hidden_wherever_it_stands() -> None:
    tokens = torch.tensor([[7, 0, 8], [0, 0, 0]])
    assert regard.padding_mask(tokens, 0).tolist() == [[[[True, False, True]]], [[[False, False, False]]]]
    assert regard.padding_mask(tokens[0], 0).tolist() == [[True, False, True]]


def test_masks_compose() -> None:
    tokens = torch.tensor([[7, 8, 0]])
    both = regard.causal_mask(3) & regard.padding_mask(tokens, 0)
    assert both[0, 0].tolist() == [[True, False, False], [True, True, False], [True, True, False]]


def test_descriptions_compose_like_the_tensors_they_describe() -> None:
    lengths = torch.tensor([1, 3])
    dense = regard.causal_mask(3)
    keys = KeyLengths(lengths).dense(3, 3)
    assert (Causal() & KeyLengths(lengths)).dense(3, 3).equal(dense & keys)
    assert (Causal() | KeyLengths(lengths)).dense(3, 3).equal(dense | keys)
    assert (dense & KeyLengths(lengths)).dense(3, 3).equal(dense & keys)
    assert (dense | KeyLengths(lengths)).dense(3, 3).equal(dense | keys)


def test_rows_stand_at_their_own_positions() -> None:
    mask = Causal(torch.tensor([0, 2])).dense(2, 4)
    assert mask[0, 0].tolist() == [[True, False, False, False], [True, True, False, False]]
    assert mask[1, 0].tolist() == [[True, True, True, False], [True, True, True, True]]


def test_a_kernel_gets_a_flag_for_what_it_knows_and_a_small_tensor_for_the_rest() -> None:
    lengths = KeyLengths(torch.tensor([2, 3]))
    assert kernel_mask(None, 3, 3, CPU) == (False, None)
    assert kernel_mask(Causal(), 3, 3, CPU) == (True, None)
    assert kernel_mask(Causal(), 1, 5, CPU) == (False, None)
    causal, rest = kernel_mask(Causal() & lengths, 3, 3, CPU)
    assert causal
    assert rest is not None
    assert rest.shape == (2, 1, 1, 3)
    causal, rest = kernel_mask(Causal(), 2, 3, CPU)
    assert not causal
    assert rest is not None
    assert rest.equal(regard.causal_mask(2, 3))


def test_bad_sizes_are_told() -> None:
    with pytest.raises(InputError, match="-1 queries"):
        regard.causal_mask(-1)
    with pytest.raises(InputError, match=r"\(1, 2, 3\)"):
        regard.padding_mask(torch.zeros(1, 2, 3, dtype=torch.int64), 0)


@dataclass(frozen=True)
class Strict(Causal):
    """A query does not attend to its own position."""

    def dense(self, T: int, S: int, device: torch.device | None = None) -> torch.Tensor:
        return super().dense(T, S, device).tril(-1)


class Neither(And):
    """Not what both masks allow, but the rest."""

    def dense(self, T: int, S: int, device: torch.device | None = None) -> torch.Tensor:
        return ~super().dense(T, S, device)


@pytest.mark.parametrize("mask", [Strict(), KeyLengths(torch.tensor([4, 9])) & Strict(), Neither(Causal(), Strict())])
def test_a_subclass_of_a_mask_is_what_it_writes_out(mask: Mask) -> None:
    x = torch.randn(2, 2, 9, 8)
    expected = attention(x, x, x, mask.dense(9, 9))
    torch.testing.assert_close(attention(x, x, x, mask), expected)
    index = torch.arange(9)
    at = Placement(index, index, index, index)
    in_blocks = SoftmaxAttention(8**-0.5)._in_blocks(x, KeyValue(x, x), mask, None, at, 4)
    torch.testing.assert_close(in_blocks, expected)
