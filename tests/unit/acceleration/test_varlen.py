"""Batches without padding: the states, gradients and dropout of padded ones."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import regard
from regard import Transformer, TransformerConfig
from regard.acceleration import known, varlen
from regard.acceleration.accelerate import accelerate
from regard.acceleration.varlen import SameSequence, Sequences, decoder_states
from regard.errors import InputError
from regard.kernels.bindings import kernels
from regard.ops.rng import keyed_dropout

pytestmark = pytest.mark.skipif(kernels() is None, reason="the kernels were not built: there was no compiler")


def model_of(**changes: Any) -> Transformer:
    settings = {"d_model": 32, "d_ff": 48, "num_heads": 4, "encoder_layers": 2, "decoder_layers": 2, **changes}
    model = Transformer(TransformerConfig(vocab_size=20, **settings))
    accelerate(model)
    return model


def tokens(lengths: list[int]) -> Tensor:
    """Rows of these lengths; the first is as long as all, so that the rest has padding."""
    rows = torch.randint(1, 20, (len(lengths), max(1, *lengths)))
    return rows.masked_fill(torch.arange(rows.size(1)) >= torch.tensor(lengths)[:, None], 0)


def rows_computed(model: Transformer, *batch: Tensor) -> list[torch.Size]:
    """Return the shapes of what the encoder and the decoder are given; a module with hooks would not be known."""
    shapes: list[torch.Size] = []
    with pytest.MonkeyPatch.context() as patch:
        for stack in (regard.layers.Encoder, regard.layers.Decoder):

            def forward(self: Any, x: Tensor, *args: Any, plain: Any = stack.forward, **kwargs: Any) -> Tensor:
                shapes.append(x.shape)
                output: Tensor = plain(self, x, *args, **kwargs)
                return output

            patch.setattr(stack, "forward", forward)
        patch.setattr(known, "changed_classes", set)  # it computes the same
        decoder_states(model, *batch)
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
    for path in ("varlen", "padded"):
        with pytest.MonkeyPatch.context() as patch, keyed_dropout(torch.arange(len(lengths))):
            if path == "padded":
                patch.setattr(varlen, "can_use_varlen", lambda model: False)
            states = decoder_states(model, source, target, real)
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
    assert rows_computed(model_of(), *batch) == [(1, 13, 32), (1, 9, 32)]
    padded = [(3, 7, 32), (3, 5, 32)]
    assert rows_computed(model_of(attention_dropout=0.1), *batch) == padded
    assert rows_computed(model_of(attention_dropout=0.1).eval(), *batch) != padded
    assert rows_computed(model_of(d_ff=36), *batch) == padded
    assert rows_computed(model_of(d_k=12), *batch) == padded
    assert rows_computed(model_of().double(), *batch)[0] == (3, 7, 32)
    longer = tokens([65, 2, 4])
    assert rows_computed(model_of(), longer, target, target != 0)[0] == (3, 65, 32)


def test_a_batch_without_anything_real_gives_nothing() -> None:
    source, target = tokens([3, 1]), torch.zeros(2, 4, dtype=torch.int64)
    assert decoder_states(model_of(), source, target, target != 0).shape == (0, 32)
    assert decoder_states(model_of(), source[:0], target[:0], target[:0] != 0).shape == (0, 32)


def test_what_is_no_token_is_refused_as_with_padding() -> None:
    source, target = tokens([3, 1]), tokens([2, 2])
    with pytest.raises(InputError, match="tokens are integers"):
        decoder_states(model_of(), source.float(), target, target != 0)
    with pytest.raises(InputError, match=r"boolean for each of \(2, 2\) tokens; got torch.bool of shape \(2, 1\)"):
        decoder_states(model_of(), source, target, target[:, :1] != 0)
    with pytest.raises(InputError, match=r"got torch.int64"):
        decoder_states(model_of(), source, target, target)
    source[1, 0] = 20
    with pytest.raises(InputError, match="token 20 at row 1, position 0"):
        decoder_states(model_of(), source, target, target != 0)
    with pytest.raises(InputError, match="positions is longer than the learned table of 3"):
        decoder_states(model_of(positions="learned", max_positions=3), tokens([4]), target[:1], target[:1] != 0)


def test_sequences_behind_one_another_must_fill_the_row() -> None:
    sequences, others = (Sequences.of(torch.tensor(lengths)) for lengths in ([2, 1], [3]))
    x = torch.randn(1, 1, 3, 4)
    regard.attention(x, x, x, SameSequence(sequences, sequences))
    with pytest.raises(InputError, match="3 queries of 2 over 3 keys of 1"):
        regard.attention(x, x, x, SameSequence(sequences, others))
    with pytest.raises(InputError, match="got 1 rows of 2 queries over 3 keys"):
        regard.attention(x[:, :, :2], x, x, SameSequence(sequences, sequences))
    with pytest.raises(InputError, match="got 2 rows of 3 queries over 3 keys"):
        regard.attention(*(x.expand(2, 1, 3, 4),) * 3, SameSequence(sequences, sequences))


def test_changed_modules_and_plain_attention_are_computed_with_padding() -> None:
    source, target = tokens([7, 2, 4]), tokens([3, 5, 1])
    batch, padded = (source, target, target != 0), [(3, 7, 32), (3, 5, 32)]
    hooked = model_of()
    hooked.get_submodule("decoder.layers.1.feed_forward.expand").register_forward_hook(lambda *_: None)
    assert rows_computed(hooked, *batch) == padded
    overridden = model_of()
    overridden.encode = overridden.encode  # type: ignore[method-assign]
    assert rows_computed(overridden, *batch) == padded
    plain = model_of()
    regard.unaccelerate(plain)
    assert rows_computed(plain, *batch) == padded


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=5),
    st.sampled_from([*CHANGES, {"sharing": {"kind": "all", "act": {}}}]),
    st.booleans(),
    st.integers(0, 999),
)
def test_a_decoder_alone_has_the_states_and_gradients_of_its_forward_pass(
    lengths: list[int], changes: dict[str, Any], training: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    model = model_of(**{"dropout": 0.3, **changes, "encoder_layers": 0}).train(training)
    target, source = tokens(lengths), torch.zeros(len(lengths), 0, dtype=torch.int64)
    real, results = target != 0, []
    direction = torch.randn(int(real.sum()), 32)
    for path in ("states", "forward pass"):
        with keyed_dropout(torch.arange(len(lengths))):
            states = decoder_states(model, source, target, real) if path == "states" else model.decode(target)[real]
        model.zero_grad()
        states.backward(direction)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()]
        results.append([states.detach(), *gradients])
    for ours, expected in zip(*results, strict=True):
        assert (ours - expected).abs().max() <= 2e-5 * max(1.0, float(expected.abs().max()))


def test_a_decoder_alone_computes_nothing_for_padding_and_reads_no_source() -> None:
    model, target, none = model_of(encoder_layers=0), tokens([3, 5, 1]), torch.zeros(3, 0, dtype=torch.int64)
    assert rows_computed(model, none, target, target != 0) == [(1, 9, 32)]
    with pytest.raises(InputError, match=r"a decoder alone reads no source; it was given one of shape \(3, 2\)"):
        decoder_states(model, tokens([2, 1, 1]), target, target != 0)


def test_the_ponder_costs_of_a_decoder_alone_are_those_of_its_real_tokens() -> None:
    model = model_of(encoder_layers=0, sharing={"kind": "all", "act": {}})
    target, costs = tokens([3, 5, 1]), list[Tensor]()
    decoder_states(model, torch.zeros(3, 0, dtype=torch.int64), target, target != 0, costs=costs)
    assert [cost.shape for cost in costs] == [(9,)]
