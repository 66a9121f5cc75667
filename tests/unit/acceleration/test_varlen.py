"""Without padding the same is computed and dropped: `can_leave_out_padding` said no gives the other way to do it."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard import Transformer, TransformerConfig
from regard.errors import InputError
from regard.kernels.bindings import kernels
from regard.ops.rng import keyed_dropout

pytestmark = pytest.mark.skipif(kernels() is None, reason="the kernels were not built: there was no compiler")


def model_of(**changes: Any) -> Transformer:
    settings = {"d_model": 32, "d_ff": 48, "num_heads": 4, "encoder_layers": 2, "decoder_layers": 2, **changes}
    return Transformer(TransformerConfig(vocab_size=20, **settings))


def tokens(lengths: list[int]) -> Tensor:
    """Rows of these lengths; the first is as long as all, so that the rest has padding."""
    rows = torch.randint(1, 20, (len(lengths), max(1, *lengths)))
    return rows.masked_fill(torch.arange(rows.size(1)) >= torch.tensor(lengths)[:, None], 0)


@contextmanager
def with_padding() -> Iterator[None]:
    with patch("regard.model.transformer.can_leave_out_padding", return_value=False):
        yield


def rows_seen(model: Transformer, *batch: Tensor) -> list[torch.Size]:
    """Give the shapes of what the layers compute with."""
    shapes: list[torch.Size] = []
    hooks = [
        stack.layers[0].register_forward_hook(lambda _module, _inputs, output: shapes.append(output.shape))
        for stack in (model.encoder, model.decoder)
        if stack is not None
    ]
    model.real_states(*batch)
    for hook in hooks:
        hook.remove()
    return shapes


CHANGES: list[dict[str, Any]] = [
    {},
    {"norm_placement": "pre", "activation": "swiglu", "positions": "learned", "max_positions": 12},
    {"norm": "rms", "num_kv_heads": 2, "d_k": 16, "d_v": 8, "embedding_norm": True, "output_bias": True},
    {"activation_dropout": 0.1, "positions": "none", "bias": False},
    {"dropout": 0.004, "activation_dropout": 0.004},  # too rare for bytes
]


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=5),
    st.sampled_from(CHANGES),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_states_and_gradients_are_those_with_padding(
    lengths: list[tuple[int, int]], changes: dict[str, Any], training: bool, holes: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    model = model_of(**{"dropout": 0.3, **changes}).train(training)
    source, target = tokens([s for s, _ in lengths]), tokens([t for _, t in lengths])
    real = target != 0
    if holes:  # as where a part of the target is given and not to be learned
        real &= torch.rand(real.shape) < 0.7
    direction = torch.randn(int(real.sum()), 32)
    results = []
    for way in (nullcontext, with_padding):
        with way(), keyed_dropout(torch.arange(len(lengths))):
            states = model.real_states(source, target, real)
        model.zero_grad()
        states.backward(direction)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()]
        results.append([states.detach(), *gradients])
    for ours, expected in zip(*results, strict=True):
        assert ours.shape == expected.shape
        assert ours.numel() == 0 or (ours - expected).abs().max() <= 2e-5 * max(1.0, float(expected.abs().max()))


def test_nothing_is_computed_for_padding_where_there_is_a_kernel_for_it() -> None:
    source, target = tokens([7, 2, 4]), tokens([3, 5, 1])
    batch = source, target, target != 0
    assert rows_seen(model_of(), *batch) == [(1, 13, 32), (1, 9, 32)]
    padded = [(3, 7, 32), (3, 5, 32)]
    assert rows_seen(model_of(attention_dropout=0.1), *batch) == padded
    assert rows_seen(model_of(attention_dropout=0.1).eval(), *batch) != padded
    assert rows_seen(model_of(d_ff=36), *batch) == padded
    assert rows_seen(model_of(d_k=12), *batch) == padded
    assert rows_seen(model_of().double(), *batch)[0] == (3, 7, 32)
    longer = tokens([65, 2, 4])
    assert rows_seen(model_of(), longer, target, target != 0)[0] == (3, 65, 32)


def test_a_batch_without_anything_real_gives_nothing() -> None:
    source, target = tokens([3, 1]), torch.zeros(2, 4, dtype=torch.int64)
    assert model_of().real_states(source, target, target != 0).shape == (0, 32)
    assert model_of().real_states(source[:0], target[:0], target[:0] != 0).shape == (0, 32)


def test_what_is_no_token_is_refused_as_with_padding() -> None:
    source, target = tokens([3, 1]), tokens([2, 2])
    with pytest.raises(InputError, match="tokens are integers"):
        model_of().real_states(source.float(), target, target != 0)
    with pytest.raises(InputError, match=r"boolean for each of \(2, 2\) tokens; got torch.bool of shape \(2, 1\)"):
        model_of().real_states(source, target, target[:, :1] != 0)
    with pytest.raises(InputError, match=r"got torch.int64"):
        model_of().real_states(source, target, target)
    source[1, 0] = 20
    with pytest.raises(InputError, match="token 20 at row 1, position 0"):
        model_of().real_states(source, target, target != 0)
    with pytest.raises(InputError, match="positions is longer than the learned table of 3"):
        model_of(positions="learned", max_positions=3).real_states(tokens([4]), target[:1], target[:1] != 0)
