"""The fused path never writes a matrix of T × S, not even one byte an element."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import regard
from regard.ops import KeyLengths

T = 4096
LENGTHS = torch.tensor([T, 100])


def largest_allocation(work: Callable[[], Any]) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work()
    events: Any = profiled.profiler
    return max(int(event.nbytes()) for event in events.kineto_results.events() if event.name() == "[memory]")


@pytest.mark.parametrize("widths", [(32, 32), (32, 16), (16, 32)], ids=lambda w: f"d_k={w[0]},d_v={w[1]}")
@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"mask": KeyLengths(LENGTHS)}, {"causal": True, "mask": KeyLengths(LENGTHS)}],
    ids=["unmasked", "causal", "padding", "causal and padding"],
)
def test_no_matrix_of_scores_is_allocated(widths: tuple[int, int], options: dict) -> None:
    K, V = widths
    query, key, value = (torch.randn(2, 2, T, n, requires_grad=True) for n in (K, K, V))
    forward = largest_allocation(lambda: regard.attention(query, key, value, **options))
    backward = largest_allocation(lambda: regard.attention(query, key, value, **options).sum().backward())
    assert max(forward, backward) < T * T
    reference = largest_allocation(lambda: regard.attention(query[:1], key[:1], value[:1], return_weights=True))
    assert reference >= 4 * T * T  # what this test would see if there were one
