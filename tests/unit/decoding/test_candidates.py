import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.acceleration.candidates import candidate_selector
from regard.decoding.candidates import TorchSelector

WIDTHS = st.sampled_from([1, 3, 8, 64, 500, 640, 1601])


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), WIDTHS, st.integers(1, 12), st.integers(0, 99), st.floats(0.0, 1.0))
def test_the_best_are_those_of_a_full_sort(B: int, N: int, W: int, k: int, seed: int, banned: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logs_BNW = torch.randn(B, N, W, generator=generator)
    logs_BNW[torch.rand(B, N, W, generator=generator) < banned] = -torch.inf
    scores_BN = torch.randn(B, N, generator=generator, dtype=torch.float64) * 30
    scores_BN[torch.rand(B, N, generator=generator) < 0.2] = -torch.inf
    totals = (logs_BNW + scores_BN[:, :, None]).flatten(1)
    k = min(k, N * W)
    expected = totals.sort(dim=1, descending=True).values[:, :k]
    for selector in (candidate_selector(), TorchSelector()):
        values, at = selector.best_continuations(logs_BNW, scores_BN, k)
        assert torch.equal(values, expected)
        for value_K, at_K, total_X in zip(values, at, totals, strict=True):
            real = value_K > -torch.inf
            assert torch.equal(value_K[real], total_X[at_K[real]])
            assert len(set(at_K[real].tolist())) == int(real.sum())


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 5), WIDTHS, st.integers(0, 99), st.sampled_from([0.1, 1.0, 30.0, 500.0]))
def test_log_probabilities_are_exact_to_a_floats_last_bits(R: int, W: int, seed: int, size: float) -> None:
    logits_RW = torch.randn(R, W, generator=torch.Generator().manual_seed(seed)) * size
    logits_RW[0, 0] = -torch.inf if W > 1 else 1.0
    expected_RW = logits_RW.double().log_softmax(-1)
    found_RW = candidate_selector().log_probabilities(logits_RW.clone())
    assert torch.allclose(found_RW.double(), expected_RW, rtol=3e-7, atol=2e-6)
    doubles_RW = candidate_selector().log_probabilities(logits_RW.double())
    assert torch.allclose(doubles_RW, expected_RW, rtol=1e-12, atol=1e-12)


def test_where_one_is_not_a_number_all_of_its_row_are() -> None:
    for wrong in (torch.nan, torch.inf):
        for place in (0, 40, 101):
            logits_RW = torch.zeros(2, 102)
            logits_RW[1, place] = wrong
            found_RW = candidate_selector().log_probabilities(logits_RW)
            assert found_RW[1].isnan().all()
            assert not found_RW[0].isnan().any()
