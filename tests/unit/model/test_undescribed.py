"""What a configuration does not describe: layers used twice, other weight tying, settings, missing parameters."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from regard import ModelError, Transformer, TransformerConfig, accelerate
from regard.acceleration.known import register_replacement, unknown_part
from regard.inference.backends import choose_backend
from regard.layers import FeedForward, SharedLayers
from regard.model.transformer import plain_model
from regard.model.undescribed import same_names, undescribed_modules
from regard.training.examples import Batch
from regard.training.losses import cross_entropy
from tests.unit.models import SENTENCES, small_pipeline


def model_of(**fields: Any) -> Any:
    size = dict(vocab_size=99, d_model=32, num_heads=4, d_ff=64, encoder_layers=3, decoder_layers=2, dropout=0.0)
    torch.manual_seed(3)
    return Transformer(TransformerConfig(**{**size, "bos_id": 1, "eos_id": 2, **fields})).eval()


def undescribed(model: Transformer) -> tuple[str, ...]:
    return undescribed_modules(model, plain_model(model.config))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"sharing": {"kind": "cycle-reversed", "layers": 2}, "decoder_layers": 3},
        {"sharing": {"kind": "all", "act": {}}},
        {"sharing": {"kind": "sequence", "layers": 1, "encoder_decoder": True}, "decoder_layers": 3},
        {"sharing": {"embedding_width": 8}, "shared_embeddings": "all"},
        {"shared_embeddings": "all"},
        {"shared_embeddings": "target-output"},
        {"positions": "t5"},
        {"positions": "alibi", "norm": "rms", "activation": "swiglu"},
        {"encoder_layers": 0, "positions": "rope"},
        {"copying": True},
    ],
    ids=str,
)
def test_what_a_configuration_describes_is_not_reported(fields: dict[str, Any]) -> None:
    model = model_of(**fields)
    assert undescribed(model) == ()
    accelerate(model)
    assert undescribed(model) == ()


def _repeated(model: Any) -> None:
    layers = model.encoder.layers
    model.encoder.layers = nn.ModuleList([layers[0], layers[1], layers[0]])


def _longer(model: Any) -> None:
    model.encoder.layers = nn.ModuleList([*model.encoder.layers, model.encoder.layers[0]])


def _shared(model: Any) -> None:
    model.encoder.layers = SharedLayers([model.encoder.layers[0]] * 3)


def _tied(model: Any) -> None:
    model.output.weight = model.source_embedding.tokens.weight


def _untied(model: Any) -> None:
    model.output.weight = nn.Parameter(model.output.weight.detach().clone())


def _without_bias(model: Any) -> None:
    model.decoder.layers[0].feed_forward_residual.norm.bias = None


def _with_scale(model: Any) -> None:
    model.decoder.layers[0].self_attention.scale = nn.Parameter(torch.tensor(0.5))


def _with_tensor(model: Any) -> None:
    model.decoder.layers[0].self_attention.softcap = torch.full((4, 1, 1), 2.0)


CHANGES: list[tuple[Callable[[Any], None], str]] = [
    (_repeated, r"Linear \(its bias is also encoder\.layers\.2\."),
    (_longer, r"encoder\.EncoderLayer \(one more than in its configuration\)"),
    (_shared, r"SharedLayers \(in place of a ModuleList\)"),
    (_tied, r"OutputProjection \(its weight is also source_embedding\.tokens\.weight\)"),
    (_untied, r"OutputProjection \(its weight is not also target_embedding\.tokens\.weight\)"),
    (_without_bias, r"LayerNorm \(has no bias\)"),
    (_with_scale, r"MultiHeadAttention \(has a scale\)"),
    (_with_tensor, r"MultiHeadAttention \(its softcap is a Tensor\)"),
]
by_change = pytest.mark.parametrize(("change", "says"), CHANGES, ids=lambda one: getattr(one, "__name__", ""))


@by_change
def test_a_change_is_recorded_and_refused(change: Callable[[Any], None], says: str, tmp_path: Path) -> None:
    model = model_of(shared_embeddings="target-output")
    change(model)
    assert any(re.search(says, name) for name in undescribed(model)), undescribed(model)
    assert unknown_part(model) is not None  # which refuses exports
    assert choose_backend(model).name.startswith("generic decoder")
    model.save(tmp_path / "model")
    with pytest.raises(ModelError, match="modules that its configuration does not describe"):
        Transformer.load(tmp_path / "model")

    def build(config: TransformerConfig) -> Transformer:
        again = Transformer(config)
        change(again)
        return again

    loaded = Transformer.load(tmp_path / "model", build=build)
    source, target = torch.randint(3, 99, (2, 5)), torch.randint(3, 99, (2, 4))
    assert loaded(source, target).equal(model(source, target))


def test_an_order_of_shared_layers_is_reported() -> None:
    model = model_of(sharing={"kind": "cycle", "layers": 2}, encoder_layers=4)
    first, second = model.encoder.layers[0], model.encoder.layers[1]
    model.encoder.layers = SharedLayers([first, second, second, first])
    assert undescribed(model) == ("regard.layers.shared_layers.SharedLayers (its order is (0, 1, 1, 0))",)


def test_a_setting_that_shadows_its_class_is_reported() -> None:
    model = model_of(positions="alibi")
    model.decoder.layers[0].self_attention.positions.adds_bias = False
    assert undescribed(model) == ("regard.layers.positions.alibi.ALiBi (its adds_bias is False)",)
    model.decoder.layers[0].self_attention.positions.adds_bias = True
    model.decoder.layers[0].name = "first"
    assert undescribed(model) == ()


def test_a_subclass_in_regard_is_not_its_base() -> None:
    model = model_of()
    with_pointer = model_of(copying=True)
    model.output.__class__ = type(with_pointer.output)
    assert undescribed(model) == ("regard.layers.pointer.PointerOutput (in place of a OutputProjection)",)


class SameFeedForward(FeedForward):
    """Computes the same in another way."""


class Smaller(SameFeedForward):
    """Computes something else."""


def test_a_declared_replacement_is_its_base_and_a_subclass_of_it_is_not(tmp_path: Path) -> None:
    register_replacement(SameFeedForward)
    model = model_of()
    model.decoder.layers[0].feed_forward.__class__ = SameFeedForward
    assert undescribed(model) == ()
    assert unknown_part(model) is None
    model.save(tmp_path)
    assert type(Transformer.load(tmp_path).decoder.layers[0].feed_forward) is FeedForward  # type: ignore[union-attr]
    model.decoder.layers[0].feed_forward.activation = "gelu"
    assert undescribed(model) == ("regard.layers.feed_forward.FeedForward (its activation is 'gelu')",)
    model.decoder.layers[0].feed_forward.__class__ = Smaller
    assert undescribed(model) == (f"{__name__}.Smaller",)


def test_a_norm_without_a_bias_is_trained_by_kernels_and_translates() -> None:
    plain, fast = model_of().train(), model_of().train()
    for model in (plain, fast):
        _without_bias(model)
        model.encoder.layers[0].feed_forward_residual.norm.weight = None
    accelerate(fast)
    source, target = torch.randint(3, 99, (2, 5)), torch.randint(3, 99, (2, 4))
    batch = Batch(source, target, target, torch.arange(2), 8)
    losses = [cross_entropy()(model, batch) for model in (plain, fast)]
    torch.testing.assert_close(*losses)
    for loss in losses:
        loss.backward()
    pipeline = small_pipeline()
    before = pipeline.score(SENTENCES[0], SENTENCES[1], to="de").score
    with torch.no_grad():
        pipeline.model.decoder.layers[0].feed_forward_residual.norm.bias.fill_(0.5)  # type: ignore
    _without_bias(pipeline.model)
    assert "generic decoder" in pipeline.backend
    assert "has no bias" in pipeline.backend
    assert pipeline.translate(SENTENCES[0], to="de", beam=2).text is not None
    assert pipeline.score(SENTENCES[0], SENTENCES[1], to="de").score == pytest.approx(before, abs=1e-4)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("a.B", "c.D"), ("a.B", "c.D"), True),
        (("__main__.B", "c.D"), ("c.D", "z.B"), True),
        (("z.B",), ("__main__.B",), True),
        (("a.B",), ("z.B",), False),
        (("a.B",), (), False),
        (("a.B",), ("a.B", "c.D"), False),
    ],
)
def test_a_script_may_be_imported_under_its_own_name(one: Any, other: Any, same: bool) -> None:
    assert same_names(one, other) is same


@pytest.mark.parametrize(
    ("fields", "path", "name"),
    [
        ({}, "source_embedding.positions", "table"),
        ({"attention": {"kind": "performer"}}, "encoder.layers.0.self_attention.kind", "projection_EK"),
        (
            {"attention": {"pattern": {"kind": "blocks", "rows": ["10", "11"]}}},
            "decoder.layers.1.self_attention.pattern",
            "matrix",
        ),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_changed_buffer_is_reported(fields: dict[str, Any], path: str, name: str, dtype: torch.dtype) -> None:
    """It is not saved, and would be computed anew."""
    model = model_of(**fields).to(dtype)
    assert undescribed(model) == ()
    buffer = model.get_submodule(path).get_buffer(name)
    buffer.copy_(~buffer if buffer.dtype == torch.bool else buffer * 0.9)
    (reported,) = undescribed(model)
    assert reported.endswith(f"(its {name} was changed)")


def test_a_table_that_is_changed_after_loading_is_decoded_with() -> None:
    pipeline = small_pipeline()
    pipeline.translate(SENTENCES[0], to="de")
    model: Any = pipeline.model
    model.source_embedding.positions.table.mul_(0.1)
    assert "its table was changed" in pipeline.backend
