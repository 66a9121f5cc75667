"""Rotary positions against complex numbers, and how they are scaled to longer sequences."""

import cmath
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import InputError
from regard.layers.positions import RotaryPositions
from regard.layers.positions.rotary import (
    LinearScaling,
    NtkScaling,
    Scaling,
    YarnScaling,
    halves_from_interleaved,
    rotary_frequencies,
)

scalings = st.sampled_from([None, LinearScaling(4.0), NtkScaling(2.0), YarnScaling(8.0, 64), YarnScaling(2.0, 9, 4.0)])


@given(st.sampled_from([4, 6, 16]), st.sampled_from([10_000.0, 7.0]), scalings, st.booleans(), st.integers(0, 1000))
def test_each_pair_is_a_complex_number_that_turns(
    d_k: int, base: float, scaling: Scaling | None, own_positions: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    rotary = RotaryPositions(d_k, base=base, scaling=scaling)
    x = torch.randn(2, 3, 5, d_k, dtype=torch.float64)
    positions = torch.randint(0, 5000, (2, 5)) if own_positions else torch.arange(5)
    found = rotary.rotate(x, positions)
    for b in range(2):
        for t, position in enumerate(positions.expand(2, 5)[b].tolist()):
            for pair, frequency in enumerate(rotary.frequencies):
                turned = complex(x[b, 1, t, pair], x[b, 1, t, pair + d_k // 2]) * cmath.exp(1j * position * frequency)
                turned *= rotary.attention_factor
                assert found[b, 1, t, pair].item() == pytest.approx(turned.real, abs=1e-11)
                assert found[b, 1, t, pair + d_k // 2].item() == pytest.approx(turned.imag, abs=1e-11)


def test_scores_depend_on_the_distance_alone() -> None:
    rotary = RotaryPositions(8)
    query, key = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)

    def score(at_query: int, at_key: int) -> float:
        rotated = rotary.rotate(query, torch.tensor([at_query])), rotary.rotate(key, torch.tensor([at_key]))
        return float((rotated[0] * rotated[1]).sum())

    assert score(3, 1) == pytest.approx(score(103, 101), abs=1e-12)
    assert score(3, 1) != pytest.approx(score(3, 2), abs=1e-3)
    assert score(0, 0) == pytest.approx(float((query * key).sum()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_angles_are_computed_in_float32_for_half_precision(dtype: torch.dtype) -> None:
    """In bfloat16, position 1,001 and position 1,000 are the same number."""
    rotary, x = RotaryPositions(8), torch.randn(1, 1, 1, 8, dtype=dtype)
    found = rotary.rotate(x, torch.tensor([1001]))
    assert found.dtype == dtype
    expected = rotary.rotate(x.double(), torch.tensor([1001]))
    torch.testing.assert_close(found.double(), expected, atol=torch.finfo(dtype).eps * 4, rtol=0.0)


def test_linear_scaling_divides_positions() -> None:
    x = torch.randn(1, 1, 3, 8, dtype=torch.float64)
    scaled, plain = RotaryPositions(8, scaling=LinearScaling(4.0)), RotaryPositions(8)
    torch.testing.assert_close(scaled.rotate(x, 4 * torch.arange(3)), plain.rotate(x, torch.arange(3)))


def test_ntk_scaling_leaves_the_fastest_pair_and_slows_the_slowest_by_the_factor() -> None:
    plain, scaled = rotary_frequencies(16, 10_000.0), RotaryPositions(16, scaling=NtkScaling(8.0)).frequencies
    assert scaled[0] == plain[0]
    assert scaled[-1] == pytest.approx(plain[-1] / 8.0)


def test_yarn_leaves_fast_pairs_slows_slow_ones_and_mixes_between() -> None:
    d_k, length, factor = 64, 2048, 4.0
    plain = rotary_frequencies(d_k, 10_000.0)
    rotary = RotaryPositions(d_k, scaling=YarnScaling(factor, length))
    ratios = [scaled / before for scaled, before in zip(rotary.frequencies, plain, strict=True)]
    turns = [length * frequency / (2 * math.pi) for frequency in plain]
    for ratio, turn in zip(ratios, turns, strict=True):
        if turn > 32 * 1.4:  # pairs are whole numbers: one more or less on each side
            assert ratio == pytest.approx(1.0)
        elif turn < 1 / 1.4:
            assert ratio == pytest.approx(1 / factor)
    assert ratios == sorted(ratios, reverse=True)
    assert any(0.3 < ratio < 0.9 for ratio in ratios)
    assert rotary.attention_factor == pytest.approx(0.1 * math.log(factor) + 1.0)
    assert RotaryPositions(d_k, scaling=YarnScaling(4.0, length, attention_factor=1.0)).attention_factor == 1.0


def test_projections_of_the_other_layout_are_converted() -> None:
    """The paper turns x_{2i} with x_{2i+1}. The same scores come out of the converted projections."""
    heads, d_k, T = 2, 6, 5
    query, key, x = (torch.randn(n, 10, dtype=torch.float64) for n in (heads * d_k, heads * d_k, T))
    rotary, index = RotaryPositions(d_k), torch.arange(T)

    def interleaved(x_HTK: torch.Tensor) -> torch.Tensor:
        angles = index[:, None] * torch.tensor(rotary_frequencies(d_k, 10_000.0), dtype=torch.float64)
        pairs = torch.view_as_complex(x_HTK.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)

    def split(projected: torch.Tensor) -> torch.Tensor:
        return projected.view(T, heads, d_k).transpose(0, 1)

    theirs = interleaved(split(x @ query.T)) @ interleaved(split(x @ key.T)).mT
    ours = [
        rotary.rotate(split(x @ halves_from_interleaved(matrix, heads).T)[None], index)[0] for matrix in (query, key)
    ]
    torch.testing.assert_close(ours[0] @ ours[1].mT, theirs)


def test_what_cannot_be_rotated_is_told() -> None:
    with pytest.raises(InputError, match="d_k is 5; rotary positions turn pairs"):
        RotaryPositions(5)
    with pytest.raises(InputError, match="single pair"):
        RotaryPositions(2, scaling=NtkScaling(2.0))
    with pytest.raises(InputError, match="9 rows are no pairs of 2 heads"):
        halves_from_interleaved(torch.randn(9, 4), 2)
