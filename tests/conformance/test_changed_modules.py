"""A changed module changes everything that the model does: no backend computes past it.

For every kind of module, a subclass and a hook that change its function change the forward pass, the training loss,
cached decoding, translation, scores and validation alike; exports refuse them by name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import Transformer, TransformerConfig, Translator, accelerate
from regard.data import Tokenizer
from regard.errors import ModelError
from regard.export import export
from regard.inference.decode import decode
from regard.layers import (
    DecoderLayer,
    Dropout,
    Embedding,
    EncoderLayer,
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
    OutputProjection,
    Residual,
    SinusoidalPositions,
    TokenEmbedding,
)
from regard.layers.patterns import SlidingWindow
from regard.model.transformer import Memory
from regard.ops import label_smoothed_cross_entropy
from regard.ops.rng import keyed_dropout
from regard.training.examples import Batch
from regard.training.losses import cross_entropy, plain_loss, r_drop

SENTENCES = ["Tom sees the cat.", "Mary likes it.", "The old cat wants a house.", "Nobody sees Boston."]


@dataclass(frozen=True)
class Change:
    """A way to make a model compute something else."""

    name: str
    apply: Callable[[Transformer], None]


def _subclass(base: type[nn.Module], number: int = 0) -> Change:
    """Change the class of one module to a subclass that returns 0.7 times what it should."""

    def apply(model: Transformer) -> None:
        module = [part for part in model.modules() if isinstance(part, base)][number]
        module.__class__ = _smaller(type(module))

    return Change(f"subclass of {base.__name__} {number}", apply)


_CLASSES: dict[type[nn.Module], type[nn.Module]] = {}


def _smaller(base: type[nn.Module]) -> type[nn.Module]:
    if base not in _CLASSES:

        def forward(self: Any, *args: object, **kwargs: object) -> object:
            return _scaled(base.forward(self, *args, **kwargs))

        _CLASSES[base] = type(f"Smaller{base.__name__}", (base,), {"forward": forward, "__module__": __name__})
    return _CLASSES[base]


def _scaled(output: Any) -> Any:
    """Return outputs that are smaller, and differ from one feature to the next: norms do not undo that."""
    if isinstance(output, tuple):
        return (_scaled(output[0]), *output[1:])
    assert isinstance(output, Tensor)
    return output * torch.linspace(0.3, 1.2, output.size(-1), dtype=output.dtype)


def _hook(base: type[nn.Module], number: int = 0) -> Change:
    def apply(model: Transformer) -> None:
        module = [part for part in model.modules() if isinstance(part, base)][number]
        module.register_forward_hook(lambda module, inputs, output: _scaled(output))

    return Change(f"hook on {base.__name__} {number}", apply)


def _first_decoder_layer(model: Transformer) -> Any:
    assert model.decoder is not None
    return model.decoder.layers[0]


def _instance_forward(model: Transformer) -> None:
    attention: Any = _first_decoder_layer(model).self_attention
    plain = attention.forward
    attention.forward = lambda *args, **kwargs: _scaled(plain(*args, **kwargs))


class SmallerHeads(MultiHeadAttention):
    """Attention whose heads give other outputs."""

    def heads(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        heads_BHTV, weights_BHTS = super().heads(*args, **kwargs)
        return _scaled(heads_BHTV), weights_BHTS


def _heads(model: Transformer) -> None:
    _first_decoder_layer(model).cross_attention.__class__ = SmallerHeads


def _parametrization(model: Transformer) -> None:
    class Smaller(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return weight * 0.5

    linear = _first_decoder_layer(model).feed_forward.contract
    nn.utils.parametrize.register_parametrization(linear, "weight", Smaller())


class ShiftedEncode(Transformer):
    """A model whose encoder states are other ones."""

    def encode(self, *args: Any, **kwargs: Any) -> Memory:
        memory = super().encode(*args, **kwargs)
        return memory._replace(states_BSD=_scaled(memory.states_BSD))


class ShiftedDecode(Transformer):
    """A model whose decoder states are other ones."""

    def decode(self, *args: Any, **kwargs: Any) -> Tensor:
        states: Tensor = _scaled(super().decode(*args, **kwargs))
        return states


class OwnLogits(Transformer):
    """A model with other logits."""

    def logits(self, *args: Any, **kwargs: Any) -> Tensor:
        return _scaled(super().logits(*args, **kwargs))  # type: ignore[no-any-return]


class OwnForward(Transformer):
    """A model with another forward pass, which its `decode` does not know."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return _scaled(super().forward(*args, **kwargs))  # type: ignore[no-any-return]


def _hook_on_model(model: Transformer) -> None:
    model.register_forward_hook(lambda module, inputs, output: _scaled(output))


def _setting(path: str, name: str, value: object) -> Change:
    """Give a module a setting that its configuration does not have."""

    def apply(model: Transformer) -> None:
        setattr(model.get_submodule(path), name, value)

    return Change(f"{name} of {path} is {value}", apply)


def _linear_feed_forward(model: Transformer) -> None:
    torch.manual_seed(7)
    _first_decoder_layer(model).feed_forward = nn.Linear(32, 32)


def _class_of_model(cls: type[Transformer]) -> Change:
    def apply(model: Transformer) -> None:
        model.__class__ = cls

    return Change(f"subclass of Transformer: {cls.__name__}", apply)


# In the order of modules(): the source embedding, the encoder's layers, the target embedding, the decoder's layers.
CHANGES = [
    _subclass(MultiHeadAttention, 0),  # the encoder's self-attention
    _subclass(MultiHeadAttention, 2),  # the decoder's self-attention
    _subclass(MultiHeadAttention, 3),  # its cross-attention
    _subclass(FeedForward, 0),
    _subclass(FeedForward, -1),
    _subclass(LayerNorm, 0),
    _subclass(LayerNorm, -1),
    _subclass(Residual, 0),
    _subclass(Residual, -1),
    _subclass(Dropout, -1),
    _subclass(TokenEmbedding),
    _subclass(Embedding, 0),
    _subclass(Embedding, -1),
    _subclass(SinusoidalPositions),
    _subclass(OutputProjection),
    _subclass(EncoderLayer, -1),
    _subclass(DecoderLayer, 0),
    _subclass(nn.Linear, 0),
    _subclass(nn.Linear, -1),
    _hook(MultiHeadAttention, 0),
    _hook(MultiHeadAttention, 2),
    _hook(MultiHeadAttention, 3),
    _hook(FeedForward, -1),
    _hook(LayerNorm, -1),
    _hook(Residual, -1),
    _hook(Dropout, -1),
    _hook(TokenEmbedding),
    _hook(Embedding, -1),
    _hook(OutputProjection),
    _hook(EncoderLayer, -1),
    _hook(DecoderLayer, 0),
    _hook(nn.Linear, -1),
    Change("a forward of an instance's own", _instance_forward),
    Change("a subclass that overrides heads", _heads),
    Change("a parametrized weight", _parametrization),
    _class_of_model(ShiftedEncode),
    _class_of_model(ShiftedDecode),
    _setting("decoder.layers.0.self_attention", "softcap", 0.1),
    _setting("decoder.layers.0.cross_attention", "scale", 1.5),
    _setting("encoder.layers.0.self_attention", "pattern", SlidingWindow(1)),
    _setting("decoder.layers.0.feed_forward", "activation", "gelu"),
    _setting("decoder.layers.0.feed_forward_residual", "placement", "pre"),
    _setting("decoder.layers.0.feed_forward_residual.norm", "eps", 2.0),
    _setting("decoder.layers.0", "cross_attention", None),
    Change("a linear layer in place of a feed-forward network", _linear_feed_forward),
]

CHANGES_OF_THE_LOGITS = [
    _class_of_model(OwnLogits),
    _class_of_model(OwnForward),
    Change("hook on Transformer", _hook_on_model),
]

in_layers = pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
by_name = pytest.mark.parametrize("change", CHANGES + CHANGES_OF_THE_LOGITS, ids=lambda change: change.name)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(SENTENCES * 4, vocab_size=380, tags=["<2de>", "<2en>"])


def model_for(tokenizer: Tokenizer, change: Change | None = None) -> Transformer:
    config = TransformerConfig(
        vocab_size=tokenizer.vocab_size,
        d_model=32,
        num_heads=4,
        d_ff=64,
        encoder_layers=2,
        decoder_layers=1,
        dropout=0.0,
        bos_id=1,
        eos_id=2,
    )
    torch.manual_seed(3)
    model = Transformer(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(1.7)
    if change is not None:
        change.apply(model)
    return model


def batch_for(tokenizer: Tokenizer) -> Batch:
    source = torch.tensor([[4, *tokenizer.encode("Tom sees it")[:3], 2], [5, 300, 301, 2, 0]])
    target = torch.tensor([[1, 310, 311], [1, 312, 313]])
    labels = torch.tensor([[310, 311, 2], [312, 313, 2]])
    return Batch(source, target, labels, torch.arange(2), 6)


@pytest.mark.parametrize("change", CHANGES_OF_THE_LOGITS, ids=lambda change: change.name)
@torch.no_grad()
def test_the_losses_come_from_logits_that_are_the_models_own(tokenizer: Tokenizer, change: Change) -> None:
    model, batch = model_for(tokenizer, change), batch_for(tokenizer)
    real, logits = batch.labels_BT != 0, model(batch.source_BS, batch.target_BT)
    for loss, smoothing in ((cross_entropy(0.1), 0.1), (r_drop(1.0, 0.1), 0.1), (plain_loss, 0.0)):
        expected = label_smoothed_cross_entropy(
            logits[real], batch.labels_BT[real], smoothing=smoothing, reduction="sum"
        )
        torch.testing.assert_close(loss(model, batch), expected, rtol=1e-5, atol=1e-5)


@in_layers
@torch.no_grad()
def test_the_forward_pass_the_loss_and_cached_decoding_all_change(tokenizer: Tokenizer, change: Change) -> None:
    plain, changed = model_for(tokenizer), model_for(tokenizer, change)
    batch = batch_for(tokenizer)
    before, after = plain(batch.source_BS, batch.target_BT), changed(batch.source_BS, batch.target_BT)
    assert (before - after).abs().max() > 1e-2
    loss = cross_entropy(0.1)
    expected = loss(changed, batch)
    assert abs(float(loss(plain, batch) - expected)) > 1e-3
    cache = changed.start_cache(changed.encode(batch.source_BS))
    steps = [changed.logits(changed.decode(batch.target_BT[:, t : t + 1], cache=cache)) for t in range(3)]
    torch.testing.assert_close(torch.cat(steps, dim=1), after, rtol=1e-4, atol=1e-4)


@by_name
@pytest.mark.parametrize(
    ("precision", "gradient"), [("float32", "exact"), ("int8", "exact"), ("float32", "sampled"), ("int8", "sampled")]
)
def test_the_loss_of_an_accelerated_model_changes_as_the_plain_one_does(
    tokenizer: Tokenizer, change: Change, precision: str, gradient: str
) -> None:
    batch, loss = batch_for(tokenizer), cross_entropy(0.1)
    expected = float(loss(model_for(tokenizer, change).train(), batch).detach())
    unchanged = float(loss(model_for(tokenizer).train(), batch).detach())
    for order in ("change, then accelerate", "accelerate, then change"):
        model = model_for(tokenizer).train()
        if order.startswith("change"):
            change.apply(model)
        accelerate(model, precision=precision, softmax_gradient=gradient)  # type: ignore[arg-type]
        if order.startswith("accelerate"):
            change.apply(model)
        found = float(loss(model, batch).detach())
        tolerance = 1e-3 if precision == "float32" else 0.05 * abs(expected)
        assert abs(found - expected) < tolerance, order
        assert abs(found - expected) < abs(found - unchanged) or abs(expected - unchanged) < tolerance, order


@by_name
def test_search_translation_and_scores_change_alike(tokenizer: Tokenizer, change: Change) -> None:
    plain = Translator(model_for(tokenizer), tokenizer, tokenizer)
    changed = Translator(model_for(tokenizer, change), tokenizer, tokenizer, precision="float")
    assert plain.backend.startswith("packed")
    assert changed.backend.startswith(("generic decoder (", "generic decoder without a cache ("))
    sources = [changed.encoded(text, "de") for text in SENTENCES]
    found, before = changed.decode(sources, beam=3), plain.decode(sources, beam=3)
    differs = False
    for source, (hypothesis, *_), (old, *_) in zip(sources, found, before, strict=True):
        (logs,) = changed.token_log_probabilities([(source, hypothesis.tokens)])
        assert sum(logs) == pytest.approx(hypothesis.log_probability, abs=1e-3)
        ((new,), (was,)) = (pipeline.token_log_probabilities([(source, old.tokens)]) for pipeline in (changed, plain))
        differs |= abs(sum(new) - sum(was)) > 1e-2
    assert differs
    translated = changed.translate(SENTENCES, to="de", beam=3)
    assert [made.tokens for made in translated] == [list(map(tokenizer.token, h.tokens)) for (h, *_) in found]
    for source, validated in zip(sources, decode(changed.model, sources, beam=3), strict=True):
        (logs,) = changed.token_log_probabilities([(source, validated.tokens)])
        assert sum(logs) == pytest.approx(validated.log_probability, abs=1e-3)


@by_name
def test_a_change_after_loading_is_seen(tokenizer: Tokenizer, change: Change) -> None:
    pipeline = Translator(model_for(tokenizer), tokenizer, tokenizer)
    pipeline.translate(SENTENCES[0], to="de")
    change.apply(pipeline.model)
    fresh = Translator(model_for(tokenizer, change), tokenizer, tokenizer)
    assert pipeline.translate(SENTENCES, to="de") == fresh.translate(SENTENCES, to="de")


@by_name
def test_exports_refuse_it_by_name(tokenizer: Tokenizer, change: Change, tmp_path: Path) -> None:
    pipeline = Translator(model_for(tokenizer, change), tokenizer, tokenizer, precision="float")
    with pytest.raises(ModelError, match="can be exported: .*(is a|has hooks|has a|varies attention)"):
        export(pipeline, tmp_path / "exported", to="onnx")
    assert not (tmp_path / "exported").exists()


@by_name
def test_what_was_saved_is_loaded_with_build_and_refused_without(
    tokenizer: Tokenizer, change: Change, tmp_path: Path
) -> None:
    model = model_for(tokenizer, change)
    model.save(tmp_path)
    with pytest.raises(ModelError, match="does not describe: .*build="):
        Transformer.load(tmp_path)

    def build(config: TransformerConfig) -> Transformer:
        built = Transformer(config)
        change.apply(built)
        return built

    batch = batch_for(tokenizer)
    loaded = Transformer.load(tmp_path, build=build)
    torch.testing.assert_close(
        loaded(batch.source_BS, batch.target_BT), model(batch.source_BS, batch.target_BT), rtol=1e-5, atol=1e-5
    )


def test_a_method_that_a_class_was_given_later_runs_everywhere(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Translator(model_for(tokenizer), tokenizer, tokenizer)
    batch, loss = batch_for(tokenizer), cross_entropy(0.1)
    before = pipeline.translate(SENTENCES, to="de"), float(loss(model_for(tokenizer), batch).detach())
    plain = FeedForward.forward
    monkeypatch.setattr(FeedForward, "forward", lambda self, states: -plain(self, states))
    assert pipeline.backend == (
        "generic decoder (encoder.layers.0.feed_forward is a FeedForward, a class that was changed)"
    )
    assert pipeline.translate(SENTENCES, to="de") != before[0]
    model = model_for(tokenizer)
    accelerate(model)
    assert abs(float(loss(model, batch).detach()) - before[1]) > 1e-3
    monkeypatch.undo()
    assert pipeline.translate(SENTENCES, to="de") == before[0]


def test_attention_dropout_of_a_layer_alone_is_trained_with(tokenizer: Tokenizer) -> None:
    model, batch = model_for(tokenizer).train(), batch_for(tokenizer)
    model.encoder.layers[0].self_attention.dropout = 0.5  # type: ignore[union-attr]
    accelerate(model)
    with keyed_dropout(torch.arange(2)):
        loss = cross_entropy(0.0)(model, batch)
    assert loss.isfinite()
