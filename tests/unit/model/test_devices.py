"""The plain model on a device without data: whatever runs there names no other device and reads nothing back."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import Transformer, TransformerConfig, label_smoothed_cross_entropy
from regard.layers import DecoderCache
from regard.ops.rng import keyed_dropout
from tests.strategies import VOCAB, configs, sparse_configs, tokens

META = torch.device("meta")
any_config = configs(relative=True) | sparse_configs()
with_decoder = any_config.filter(lambda config: config.kind != "encoder-only")


def built_on_it(config: TransformerConfig) -> Transformer:
    with META:
        return Transformer(config)


def moved_to_it(config: TransformerConfig) -> Transformer:
    return Transformer(config).to(META)


any_way = st.sampled_from([built_on_it, moved_to_it])
Build = Callable[[TransformerConfig], Transformer]


def inputs_of(config: TransformerConfig, rows: int = 2) -> tuple[Tensor, ...]:
    target = tokens(rows, 4, VOCAB).to(META)
    return (tokens(rows, 5, config.source_size).to(META), target) if config.kind == "encoder-decoder" else (target,)


@settings(max_examples=60)
@given(any_config, any_way, st.booleans(), st.booleans())
def test_a_model_takes_a_step(config: TransformerConfig, build: Build, training: bool, with_keys: bool) -> None:
    """Forward and backward pass and an optimizer step, with dropout by the device's own generator or by keys."""
    model = build(config).train(training)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=False)
    inputs = inputs_of(config)
    if with_keys:
        with keyed_dropout(torch.arange(2)):
            logits = model(*inputs)
    else:
        logits = model(*inputs)
    assert (logits.device, tuple(logits.shape)) == (META, (2, 4, VOCAB))
    labels = torch.randint(0, VOCAB, (2, 4), device=META)
    label_smoothed_cross_entropy(logits, labels, pad_id=0).backward()
    for name, parameter in model.named_parameters():
        assert parameter.device == META, name
        assert parameter.grad is not None, name
        assert parameter.grad.shape == parameter.shape, name
    optimizer.step()


@settings(max_examples=30)
@given(any_config, st.booleans())
def test_the_losses_of_an_output_projection(config: TransformerConfig, r_drop: bool) -> None:
    model, inputs = built_on_it(config), inputs_of(config)
    if config.kind == "encoder-decoder":
        states = [model.decode(inputs[1], model.encode(inputs[0])) for _ in range(2)]
    else:
        run = model.decode if config.kind == "decoder-only" else lambda x: model.encode(x).states_BSD
        states = [run(inputs[0]) for _ in range(2)]
    labels = torch.randint(0, VOCAB, (2, 4), device=META)
    first, second = states
    loss = (
        model.output.r_drop_loss(first, second, labels) if r_drop else model.output.loss(first, labels, smoothing=0.1)
    )
    loss.backward()
    assert loss.device == META
    assert all(parameter.grad is not None for parameter in model.parameters())


def started(model: Transformer, config: TransformerConfig, rows: int, beams: int) -> DecoderCache:
    memory = None
    if model.encoder is not None:
        memory = model.encode(tokens(rows, 5, config.source_size).to(META))
    return model.start_cache(memory, beams=beams)


@settings(max_examples=60)
@given(with_decoder, any_way, st.booleans(), st.integers(1, 3), st.booleans())
def test_cached_decoding(config: TransformerConfig, build: Build, training: bool, beams: int, even: bool) -> None:
    model = build(config).train(training)
    cache = started(model, config, 2, beams)
    R = 2 * beams
    prefix = torch.ones(R, 3, dtype=torch.int64, device=META)
    model.decode(prefix, cache=cache, lengths=None if even else [1 + row % 3 for row in range(R)])
    fresh = started(model, config, 1, beams)
    model.decode(prefix[:beams, :2], cache=fresh)
    cache.admit(fresh)
    cache.reorder([row // beams * beams for row in range(R + beams)])
    record: list[Tensor] = []
    logits = model.logits(
        model.decode(torch.ones(R + beams, 1, dtype=torch.int64, device=META), cache=cache, record=record)
    )
    assert (logits.device, tuple(logits.shape)) == (META, (R + beams, 1, VOCAB))
    assert len(record) == (config.decoder_layers if model.encoder is not None else 0)
    assert all(weights.shape == (R + beams, config.num_heads, 1, 5) for weights in record)
    cache.keep(range(beams, R + beams))
    logits = model.logits(model.decode(torch.ones(R, 1, dtype=torch.int64, device=META), cache=cache))
    assert tuple(logits.shape) == (R, 1, VOCAB)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions(dtype: torch.dtype) -> None:
    model = moved_to_it(TransformerConfig.preset("tiny", vocab_size=VOCAB, attention_dropout=0.1)).to(dtype).train()
    logits = model(*inputs_of(model.config))
    logits.float().sum().backward()
    assert (logits.dtype, logits.device) == (dtype, META)


def test_attention_weights_and_long_sequences() -> None:
    """Beyond the first table of positions, and beyond what was built on the host."""
    model = moved_to_it(TransformerConfig.preset("tiny", vocab_size=VOCAB))
    long = torch.ones(1, 700, dtype=torch.int64, device=META)
    assert model(long, long).shape == (1, 700, VOCAB)
    assert model.cross_attention(*inputs_of(model.config)).device == META
