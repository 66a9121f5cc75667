"""A sentence's output does not depend on its batch: padding, neighbors and batch size change nothing."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import TransformerConfig
from tests.strategies import PAD, VOCAB, configs, model_of, sparse_configs, tokens


def padded(rows: list[Tensor], extra: int) -> Tensor:
    width = max(len(row) for row in rows) + extra
    return torch.stack([torch.cat([row, row.new_full((width - len(row),), PAD)]) for row in rows])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@settings(max_examples=80)
@given(
    configs(relative=True) | sparse_configs(),
    st.lists(st.tuples(st.integers(1, 7), st.integers(1, 7)), min_size=1, max_size=4),
    st.integers(0, 3),
)
@torch.no_grad()
def test_alone_and_in_any_batch(
    dtype: torch.dtype,
    tolerance: float,
    config: TransformerConfig,
    lengths: list[tuple[int, int]],
    extra: int,
) -> None:
    model = model_of(config, dtype=dtype)
    sources = [tokens(1, length, config.source_size)[0] for length, _ in lengths]
    targets = [tokens(1, length, VOCAB)[0] for _, length in lengths]
    if config.kind == "encoder-decoder":
        together = model(padded(sources, extra), padded(targets, extra))
        alone = [model(s[None], t[None])[0] for s, t in zip(sources, targets, strict=True)]
    else:
        together = model(padded(targets, extra))
        alone = [model(t[None])[0] for t in targets]
    for row, expected in enumerate(alone):
        largest = max(1.0, expected.abs().max().item())
        assert (together[row, : len(expected)] - expected).abs().max() <= tolerance * largest


@given((configs(relative=True) | sparse_configs()).filter(lambda config: config.kind == "encoder-decoder"))
@torch.no_grad()
def test_an_empty_source_and_an_empty_target_stay_finite(config: TransformerConfig) -> None:
    model = model_of(config)
    nothing = torch.full((1, 3), PAD)
    assert model(nothing, tokens(1, 2, VOCAB)).isfinite().all()
    assert model(torch.empty(2, 0, dtype=torch.int64), tokens(2, 2, VOCAB)).isfinite().all()
    assert model(tokens(2, 3, config.source_size), torch.empty(2, 0, dtype=torch.int64)).shape == (2, 0, VOCAB)
