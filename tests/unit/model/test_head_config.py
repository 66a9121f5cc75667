"""Encoders that end in a head: what they compute, and that they are described, saved and loaded as other models."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import ConfigError, Transformer, TransformerConfig
from regard.errors import InputError, ModelError
from regard.export.exporting import check_exportable
from regard.inference.generic_decoder import GenericBackend
from regard.layers import ClassificationHead, SpanHead
from regard.model.transformer import plain_model
from regard.model.undescribed import undescribed_modules
from tests.strategies import VOCAB, configs, model_of, sparse_configs, tokens

HEADS: list[dict[str, Any]] = [
    {"kind": "classification", "labels": 3},
    {"kind": "classification", "labels": 2, "pooling": "first"},
    {"kind": "span"},
]
by_head = pytest.mark.parametrize("head", HEADS, ids=str)


def with_head(config: TransformerConfig, head: dict[str, Any]) -> TransformerConfig:
    changes = {"encoder_layers": 2, "decoder_layers": 0, "output_bias": False, "head": head}
    return TransformerConfig.model_validate({**config.model_dump(), **changes, "source_vocab_size": None})


def config_of(head: dict[str, Any], **changes: Any) -> TransformerConfig:
    fields = dict(d_model=16, num_heads=4, d_ff=32, encoder_layers=2, decoder_layers=0, dropout=0.1)
    return TransformerConfig(**{"vocab_size": VOCAB, **fields, "head": head, **changes})


any_config = st.builds(with_head, configs(relative=True) | sparse_configs(), st.sampled_from(HEADS))


@settings(max_examples=60)
@given(any_config)
@torch.no_grad()
def test_the_model_gives_the_logits_of_its_head_whatever_the_padding(config: TransformerConfig) -> None:
    model = model_of(config)
    source = tokens(3, 6, VOCAB)
    source[1, 4:], source[2, 1:] = 0, 0
    logits, memory = model(source), model.encode(source)
    assert logits.equal(model.output(memory.states_BSD, memory.mask))
    assert logits.equal(model.logits(*memory))
    is_span = config.head is not None and config.head.kind == "span"
    assert logits.shape == ((3, 6, 2) if is_span else (3, model.output.linear.out_features))
    for row, length in enumerate((6, 4, 1)):
        alone = model(source[row : row + 1, :length])[0]
        torch.testing.assert_close(logits[row, :length] if is_span else logits[row], alone, rtol=1e-9, atol=1e-9)
        if is_span:
            assert (logits[row, length:] == -torch.inf).all()


@settings(max_examples=30)
@given(any_config)
def test_every_parameter_learns_and_nothing_is_tied_to_the_head(config: TransformerConfig) -> None:
    model = model_of(config).train()
    source = tokens(2, 5, VOCAB)
    labels = torch.tensor([[1, 3], [0, 2]]) if isinstance(model.output, SpanHead) else torch.tensor([0, 1])
    memory = model.encode(source)
    model.output.loss(memory.states_BSD, labels, memory.mask).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    shared = {id(p) for p in model.output.parameters()} & {id(p) for p in model.source_embedding.parameters()}  # type: ignore[union-attr]
    assert not shared


@by_head
def test_a_description_shows_the_head_and_counts_its_parameters(head: dict[str, Any]) -> None:
    model = Transformer(config_of(head))
    told = model.describe()
    assert f"encoder-only with a {head['kind']} head" in told
    assert "output" in told
    width = head.get("labels", 2)
    shape, count = f"({width}, 16) + ({width})", f"{17 * width:,}"
    assert any(shape in line and line.endswith(count) for line in told.splitlines())
    assert ("(B, S, 2)" if head["kind"] == "span" else f"(B, {width})") in told
    assert "scores of the vocabulary" not in told
    assert max(map(len, told.splitlines())) <= 80


@by_head
def test_a_model_with_a_head_is_saved_and_loaded(head: dict[str, Any], tmp_path: Path) -> None:
    model = Transformer(config_of(head)).eval()
    assert undescribed_modules(model, plain_model(model.config)) == ()
    model.save(tmp_path)
    loaded, source = Transformer.load(tmp_path), tokens(2, 4, VOCAB)
    assert loaded.config == model.config
    assert loaded(source).equal(model(source))
    other = Transformer(model.config)
    other.load_state_dict(model.state_dict())
    assert other.eval()(source).equal(model(source))
    wider = Transformer(config_of({"kind": "classification", "labels": 9}))
    with pytest.raises(RuntimeError, match="size mismatch"):
        wider.load_state_dict(model.state_dict())


@by_head
def test_a_model_with_a_head_on_a_device_without_data(head: dict[str, Any]) -> None:
    with torch.device("meta"):
        model = Transformer(config_of(head)).train()
    source = tokens(2, 5, VOCAB).to("meta")
    model(source).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@by_head
def test_a_new_head_starts_small_and_without_a_bias(head: dict[str, Any]) -> None:
    linear = Transformer(config_of(head, d_model=64)).output.linear
    assert (linear.bias == 0.0).all()
    bound = (6 / (64 + linear.out_features)) ** 0.5
    assert 0.5 * bound < linear.weight.abs().max() <= bound


def test_the_table_becomes_the_module() -> None:
    labels = Transformer(config_of({"kind": "classification", "labels": 5, "pooling": "first"}, dropout=0.3)).output
    assert isinstance(labels, ClassificationHead)
    assert (labels.pooling, labels.dropout.rate, labels.linear.weight.shape) == ("first", 0.3, (5, 16))
    assert isinstance(Transformer(config_of("span")).output, SpanHead)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(decoder_layers=2), "head is span, which an encoder alone ends in; decoder_layers is 2, not 0"),
        (dict(encoder_layers=0, decoder_layers=2), "decoder_layers is 2, not 0"),
        (dict(output_bias=True), "output_bias is for logits over the vocabulary, and head is span"),
        (dict(head="spam"), "the head 'spam' is not known; did you mean span?"),
        (dict(head="classification"), "head.labels is missing"),
        (dict(head={"kind": "classification", "labels": 1}), "head.labels is 1"),
        (dict(head={"kind": "classification", "labels": 4, "pooling": "max"}), "head.pooling is 'max'"),
        (dict(head={"kind": "span", "labels": 4}), "head.labels is not a known key"),
    ],
)
def test_what_does_not_fit_is_one_sentence(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(**{"head": {"kind": "span"}, **changes})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@by_head
def test_nothing_writes_with_a_head_or_exports_it(head: dict[str, Any]) -> None:
    model = Transformer(config_of(head, bos_id=1, eos_id=2)).eval()
    with pytest.raises(InputError, match="no decoder"):
        GenericBackend(model)
    with pytest.raises(InputError, match="nothing to decode with"):
        model.start_cache(model.encode(tokens(1, 3, VOCAB)))
    with pytest.raises(ModelError, match=f"can be exported: this one has a {head['kind']} head"):
        check_exportable(model)
