"""Random queries, keys, values and masks, and attention by given weights, step by step."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest.mock import patch

import torch
from hypothesis import strategies as st
from torch import Tensor

from regard.layers.kinds import scan  # the module
from regard.layers.kv_cache import KeyValue


class Problem(NamedTuple):
    """What a kind of attention is given, in float64, with fewer key heads than query heads."""

    query_BHTK: Tensor
    key_BGSK: Tensor
    value_BGSV: Tensor
    allowed_BS: Tensor | None
    states_BSD: Tensor

    @property
    def key_value(self) -> KeyValue:
        """The keys and values as a kind takes them."""
        return KeyValue(self.key_BGSK, self.value_BGSV)

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """What has a gradient."""
        return self.query_BHTK, self.key_BGSK, self.value_BGSV


@st.composite
def problems(draw: st.DrawFn, *, same_length: bool = True, longest: int = 150) -> Problem:
    """Draw a problem of two rows or more; where keys are hidden, all of the last row are."""
    T = draw(st.integers(1, longest))
    S = T if same_length else draw(st.integers(1, longest))
    masked, seed = draw(st.booleans()), draw(st.integers(0, 1000))
    return problem(T, S, masked=masked, seed=seed)


def problem(T: int, S: int, *, masked: bool = False, seed: int = 0, scale: float = 1.0) -> Problem:
    """Return a problem of 3 rows, 4 heads over 2 key heads."""
    draw = torch.Generator().manual_seed(seed)
    B, H, G, K, V = 3, 4, 2, 4, 3
    query, key, value = (
        (scale * torch.randn(*shape, generator=draw, dtype=torch.float64)).requires_grad_()
        for shape in ((B, H, T, K), (B, G, S, K), (B, G, S, V))
    )
    allowed = None
    if masked:
        allowed = torch.rand(B, S, generator=draw) < 0.7
        allowed[-1] = False
    return Problem(query, key, value, allowed, torch.randn(B, S, 6, generator=draw, dtype=torch.float64))


def weighted(weights_BHTS: Tensor, given: Problem, *, causal: bool) -> Tensor:
    """Return the averages of values by weights that are not negative, over the keys that are allowed."""
    _, H, T, S = weights_BHTS.shape
    seen = torch.ones(T, S, dtype=torch.bool).tril() if causal else torch.ones(T, S, dtype=torch.bool)
    if given.allowed_BS is not None:
        seen = seen & given.allowed_BS[:, None, None]
    kept = weights_BHTS.masked_fill(~seen, 0.0)
    total = kept.sum(-1, keepdim=True)
    return kept @ heads(given.value_BGSV, H) / total.masked_fill(total == 0.0, 1.0)


def heads(x_BGSK: Tensor, H: int) -> Tensor:
    """Return a copy of each key head for its query heads."""
    return x_BGSK.repeat_interleave(H // x_BGSK.size(1), 1)


def assert_same(found: Tensor, expected: Tensor, inputs: tuple[Tensor, ...], tolerance: float = 1e-9) -> None:
    """Compare outputs, and the gradients of all inputs."""
    assert found.shape == expected.shape
    grad = torch.randn(found.shape, generator=torch.Generator().manual_seed(1), dtype=found.dtype)
    for ours, theirs in zip(
        (found, *torch.autograd.grad(found, inputs, grad)),
        (expected, *torch.autograd.grad(expected, inputs, grad)),
        strict=True,
    ):
        assert ours.isfinite().all()
        assert (ours - theirs).abs().max() <= tolerance * max(1.0, theirs.abs().max().item())


@contextmanager
def segments_of(length: int) -> Iterator[None]:
    """Compute long sequences in segments of so many positions."""
    with patch.object(scan, "_SEGMENT", length):
        yield
