import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.search.candidates import best_continuations


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from([3, 64, 500, 640, 1601]),
    st.integers(1, 12),
    st.integers(0, 99),
)
def test_the_best_are_those_of_a_full_sort(B: int, N: int, W: int, k: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logs_BNW = torch.randn(B, N, W, generator=generator)
    logs_BNW[torch.rand(B, N, W, generator=generator) < 0.2] = -torch.inf
    scores_BN = torch.randn(B, N, generator=generator, dtype=torch.float64)
    values, at = best_continuations(logs_BNW, scores_BN, k)
    totals = (logs_BNW + scores_BN[:, :, None]).flatten(1)
    k = min(k, N * W)
    assert torch.equal(values, totals.sort(dim=1, descending=True).values[:, :k])
    assert torch.equal(values, totals.gather(1, at))
    assert all(len(set(row)) == k for row in at.tolist())
