"""What decodes is named, and is never a stale copy of the model."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrize

import regard
from regard import Pipeline, Transformer, Translator
from regard.data.lexicon import Lexicon
from regard.decoding.shortlist import Shortlist
from regard.errors import InputError
from regard.layers import FeedForward
from regard.tasks.text2text import TextToTextTask
from tests.unit.models import SENTENCES, save_small_model, small_model, small_pipeline

TEXTS = SENTENCES[::9]


def decoder_layer(model: Transformer, number: int = 0) -> nn.Module:
    return model.get_submodule(f"decoder.layers.{number}")


class Opposite(FeedForward):
    def forward(self, x: Tensor) -> Tensor:
        return -super().forward(x)


class Doubled(nn.Parameter):
    """A weight of a class of its own: a linear layer with it doubles what it returns."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*args, **(kwargs or {}))
        return 2 * found if func is torch.nn.functional.linear else found


def assign_a_parameter_of_another_class(model: Transformer) -> None:
    linear: Any = decoder_layer(model).get_submodule("feed_forward.contract")
    linear.weight = torch.Tensor._make_subclass(Doubled, linear.weight.detach().clone(), True)


class Negative(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return -x


def scale_a_weight(model: Transformer) -> None:
    with torch.no_grad():
        model.output.weight.mul_(-1.0)


def scale_a_weight_in_inference_mode(model: Transformer) -> None:
    with torch.inference_mode():
        model.output.weight.mul_(-1.0)


def change_one_number(model: Transformer) -> None:
    with torch.no_grad():
        model.get_parameter("decoder.layers.1.feed_forward_residual.norm.bias")[0] += 9.0


def load_other_weights(model: Transformer) -> None:
    model.load_state_dict({name: -tensor for name, tensor in model.state_dict().items()})


def assign_other_data(model: Transformer) -> None:
    model.output.weight.data = -model.output.weight.data


def assign_a_parameter(model: Transformer) -> None:
    model.output.weight = nn.Parameter(-model.output.weight.detach())


def step_a_fused_optimizer(model: Transformer) -> None:
    """Torch counts no new version of weights that a fused optimizer moves."""
    model.output.weight.grad = model.output.weight.detach().clone()
    torch.optim.SGD(model.parameters(), lr=2.0, fused=True).step()


def change_the_data_in_place(model: Transformer) -> None:
    model.output.weight.data.neg_()


def swap_two_numbers_of_the_data(model: Transformer) -> None:
    weight = model.output.weight.data
    weight[[3, 9]] = weight[[9, 3]]


def step_an_optimizer(model: Transformer) -> None:
    model.output.weight.grad = model.output.weight.detach().clone()
    torch.optim.SGD(model.parameters(), lr=2.0).step()


def change_a_setting(model: Transformer) -> None:
    decoder_layer(model).feed_forward.activation = "silu"  # type: ignore[union-attr]
    decoder_layer(model, 1).feed_forward_residual.placement = "pre"  # type: ignore[union-attr]


def swap_layers(model: Transformer) -> None:
    assert model.encoder is not None
    layers = model.encoder.layers
    layers[0], layers[1] = layers[1], layers[0]


def remove_a_layer(model: Transformer) -> None:
    assert model.encoder is not None
    del model.encoder.layers[0]


def replace_a_module(model: Transformer) -> None:
    config = model.config
    opposite = Opposite(config.d_model, config.d_ff, activation=config.activation).double().eval()
    opposite.load_state_dict(decoder_layer(model).feed_forward.state_dict())  # type: ignore[union-attr]
    decoder_layer(model).feed_forward = opposite


def change_a_class(model: Transformer) -> None:
    decoder_layer(model).get_submodule("feed_forward").__class__ = Opposite


def assign_a_forward(model: Transformer) -> None:
    module = decoder_layer(model).get_submodule("feed_forward")
    plain = module.forward
    module.forward = lambda x: -plain(x)


def parametrize_a_weight(model: Transformer) -> None:
    parametrize.register_parametrization(model.output, "weight", Negative())


def add_a_hook(model: Transformer) -> None:
    model.output.register_forward_hook(lambda module, inputs, logits: -logits)


def add_a_hook_before(model: Transformer) -> None:
    model.output.register_forward_pre_hook(lambda module, inputs: (-inputs[0],))


CHANGES: dict[Callable[[Transformer], None], str] = {
    scale_a_weight: "packed",
    scale_a_weight_in_inference_mode: "packed",
    change_one_number: "packed",
    load_other_weights: "packed",
    assign_other_data: "packed",
    assign_a_parameter: r"generic decoder \(the model has a .*\(its weight is not also source_embedding.*\)\)",
    assign_a_parameter_of_another_class: r"generic decoder \(decoder.*contract has a Doubled as its weight\)",
    step_a_fused_optimizer: "packed",
    change_the_data_in_place: "packed",
    swap_two_numbers_of_the_data: "packed",
    step_an_optimizer: "packed",
    change_a_setting: r"generic decoder \(the model has a .*FeedForward \(its activation is 'silu'\)\)",
    swap_layers: "packed",
    remove_a_layer: r"generic decoder \(the model has a .*\(one is left out\)\)",
    replace_a_module: rf"generic decoder \(decoder.layers.0.feed_forward is a {__name__}.Opposite\)",
    change_a_class: rf"generic decoder \(decoder.layers.0.feed_forward is a {__name__}.Opposite\)",
    assign_a_forward: r"generic decoder \(decoder.layers.0.feed_forward has a forward of its own\)",
    parametrize_a_weight: r"generic decoder \(output is a .*Parametrized",
    add_a_hook: r"generic decoder \(output has hooks\)",
    add_a_hook_before: r"generic decoder \(output has hooks\)",
}


@pytest.mark.parametrize(("change", "backend"), CHANGES.items(), ids=[change.__name__ for change in CHANGES])
def test_a_change_of_the_model_changes_what_is_translated(change: Callable[[Transformer], None], backend: str) -> None:
    pipeline = small_pipeline(torch.float64)
    before = pipeline.translate(TEXTS, to="de")
    change(pipeline.model)
    model, tokenizer = small_model(torch.float64)
    change(model)
    expected = Translator(model, tokenizer, tokenizer, precision="float")
    assert pipeline.translate(TEXTS, to="de") == expected.translate(TEXTS, to="de") != before
    assert "".join(pipeline.stream(TEXTS[0], to="de")) == expected.translate(TEXTS[0], to="de").text
    source = pipeline.encoded(TEXTS[0], "de")
    assert pipeline.decode([source]) == expected.decode([source])
    assert re.match(backend, pipeline.backend), pipeline.backend


def test_what_is_taken_back_is_as_it_was() -> None:
    pipeline = small_pipeline(torch.float64)
    before, name = pipeline.translate(TEXTS, to="de"), pipeline.backend
    layer = decoder_layer(pipeline.model)
    feed_forward = layer.get_submodule("feed_forward")
    for _ in range(2):
        handle = pipeline.model.output.register_forward_hook(lambda module, inputs, logits: -logits)
        assert pipeline.translate(TEXTS, to="de") != before
        handle.remove()
        assert pipeline.translate(TEXTS, to="de") == before
        replace_a_module(pipeline.model)
        assert pipeline.translate(TEXTS, to="de") != before
        layer.feed_forward = feed_forward
        assert pipeline.translate(TEXTS, to="de") == before
    assert pipeline.backend == name


@pytest.mark.parametrize("first", ["asked for", "translated with"])
def test_a_loaded_model_may_be_changed_at_any_time(tmp_path: Path, first: str) -> None:
    pipeline = regard.load(save_small_model(tmp_path / "model"), precision="float")
    model = pipeline.model if first == "asked for" else None
    before = pipeline.translate(TEXTS, to="de")
    layer = decoder_layer(pipeline.model if model is None else model)
    pipeline.translate(TEXTS[0], to="de")
    handle = layer.register_forward_hook(lambda module, inputs, states: -states)
    assert pipeline.backend == "generic decoder (decoder.layers.0 has hooks)"
    assert pipeline.translate(TEXTS, to="de") != before
    handle.remove()
    assert pipeline.translate(TEXTS, to="de") == before


def test_a_build_function_may_keep_the_model_it_makes(tmp_path: Path) -> None:
    built = []

    def build(config: regard.TransformerConfig) -> Transformer:
        built.append(Transformer(config))
        return built[-1]

    pipeline = regard.load(save_small_model(tmp_path / "model"), precision="float", build=build)
    before = pipeline.translate(TEXTS, to="de")
    scale_a_weight(built[-1])
    assert pipeline.translate(TEXTS, to="de") != before


def test_a_global_hook_is_heeded_by_a_loaded_model(tmp_path: Path) -> None:
    pipeline = regard.load(save_small_model(tmp_path / "model"), precision="float")
    before = pipeline.translate(TEXTS, to="de")
    handle = register_module_forward_hook(
        lambda module, inputs, output: -output if isinstance(module, FeedForward) else None
    )
    try:
        assert pipeline.translate(TEXTS, to="de") != before
        assert pipeline.backend.startswith("generic decoder")
    finally:
        handle.remove()
    assert pipeline.translate(TEXTS, to="de") == before


def mix(module: nn.Module, inputs: Any, states: Tensor) -> Tensor:
    """Add the state of the position before, which no cache keeps."""
    return states + torch.cat([torch.zeros_like(states[:, :1]), states[:, :-1]], 1)


@pytest.mark.parametrize("kind", ["hook", "forward", "method of its class", "attribute"])
def test_a_change_of_what_was_changed_already_is_seen(kind: str) -> None:
    """A model that decodes with a cache may come to depend on other positions by the next change."""

    class Mine(FeedForward):
        matrix: Any = None

        def forward(self, x: Tensor) -> Tensor:
            states = super().forward(x)
            return states if self.matrix is None else states + self.matrix[: x.size(1), : x.size(1)] @ states

    pipeline = small_pipeline(torch.float64)
    layer: Any = decoder_layer(pipeline.model).get_submodule("feed_forward")
    plain, before = layer.forward, pipeline.translate(TEXTS[0], to="de").text
    shift = torch.eye(200, dtype=torch.float64).roll(1, 0)
    handle = None
    if kind == "hook":
        handle = layer.register_forward_hook(lambda *_: None)
    elif kind == "forward":
        layer.forward = lambda x: plain(x)
    else:
        layer.__class__ = Mine
    if kind == "attribute":
        layer.matrix = torch.zeros(200, 200, dtype=torch.float64)
    assert pipeline.translate(TEXTS[0], to="de").text == before
    assert pipeline.backend.startswith("generic decoder (")
    if handle is not None:
        handle.remove()
        layer.register_forward_hook(mix)
    elif kind == "forward":
        layer.forward = lambda x: mix(layer, x, plain(x))
    elif kind == "attribute":
        layer.matrix = shift
    else:
        setattr(Mine, "forward", lambda self, x: mix(self, x, FeedForward.forward(self, x)))  # noqa: B010
    source = pipeline.encoded(TEXTS[0], "de")
    ((best,),) = pipeline.decode([source])
    (logs,) = pipeline.token_log_probabilities([(source, best.tokens)])
    assert best.log_probability == pytest.approx(sum(logs))
    assert pipeline.backend.startswith("generic decoder without a cache")


def test_a_tensor_in_place_of_a_setting_is_seen() -> None:
    pipeline = small_pipeline(torch.float64)
    before = pipeline.translate(TEXTS, to="de")
    attention: Any = decoder_layer(pipeline.model).get_submodule("cross_attention")
    attention.scale = torch.full((4, 1, 1), 5.0, dtype=torch.float64)
    assert pipeline.backend.startswith("generic decoder (")
    assert pipeline.translate(TEXTS, to="de") != before


def test_methods_of_a_class_are_heeded_by_a_loaded_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = regard.load(save_small_model(tmp_path / "model"), precision="float")
    before = pipeline.translate(TEXTS, to="de")
    plain: Any = regard.MultiHeadAttention.project_query
    with monkeypatch.context() as patch:
        patch.setattr(regard.MultiHeadAttention, "project_query", lambda *args: -plain(*args))
        assert pipeline.translate(TEXTS, to="de") != before
    assert pipeline.translate(TEXTS, to="de") == before


def test_dropout_that_is_on_is_not_ignored() -> None:
    pipeline = small_pipeline(torch.float64, dropout=0.3)
    source = pipeline.encoded(TEXTS[0], "de")
    (expected,) = pipeline.decode([source])
    pipeline.model.train()
    assert pipeline.backend == "generic decoder (dropout is on; model.eval() turns it off)"
    assert pipeline.decode([source])[0][0].score != pipeline.decode([source])[0][0].score
    pipeline.model.eval()
    assert pipeline.decode([source]) == [expected]


def test_logits_that_a_hook_holds_are_not_written_over() -> None:
    pipeline = small_pipeline()
    kept: list[tuple[Tensor, Tensor]] = []
    pipeline.model.output.register_forward_hook(lambda module, inputs, logits: kept.append((logits, logits.clone())))
    pipeline.translate(TEXTS[0], to="de", beam=1)
    assert len(kept) > 2
    for logits, copy in kept:
        torch.testing.assert_close(logits, copy, rtol=0, atol=0)


def test_attention_is_that_of_a_decode_of_the_models_own() -> None:
    class Reversed(Transformer):
        def decode(self, target: Tensor, memory: Any = None, **options: Any) -> Tensor:
            if memory is not None:
                memory = memory._replace(states_BSD=memory.states_BSD.flip(1))
            return super().decode(target, memory, **options)

    pipeline = small_pipeline(torch.float64)
    before = pipeline.attention("Tom sees it.", "Mary", to="de").weights_LHTS
    pipeline.model.__class__ = Reversed
    after = pipeline.attention("Tom sees it.", "Mary", to="de").weights_LHTS
    assert not torch.allclose(before, after)


def test_padding_is_at_the_end_of_a_source_only() -> None:
    pipeline = small_pipeline(torch.float64)
    source = pipeline.encoded(TEXTS[0], "de")
    assert pipeline.decode([[*source, 0, 0]], max_length=9) == pipeline.decode([source], max_length=9)
    with pytest.raises(InputError, match=r"source 1 has padding \(token 0\) before other tokens"):
        pipeline.decode([source, [*source[:2], 0, *source[2:]]])


def test_the_backend_is_named() -> None:
    for dtype, name in ((torch.float32, "packed float32 decoder"), (torch.float64, "packed float64 decoder")):
        assert small_pipeline(dtype).backend.startswith(name)
    pipeline = small_pipeline(precision="int8")
    assert pipeline.backend.startswith("packed int8 decoder")
    handle = pipeline.model.output.register_forward_hook(lambda *_: None)
    with pytest.raises(InputError, match="int8 decoding is for models whose every module is known: output has hooks"):
        pipeline.translate(TEXTS[0], to="de")
    handle.remove()
    assert pipeline.translate(TEXTS[0], to="de").tokens


def test_a_precision_of_ones_own_choice_follows_the_model() -> None:
    pipeline = small_pipeline(precision="auto")
    chosen = pipeline.precision
    handle = pipeline.model.output.register_forward_hook(lambda *_: None)
    assert pipeline.backend == "generic decoder (output has hooks)"
    assert pipeline.precision == "float"
    handle.remove()
    assert pipeline.backend.startswith("packed")
    assert pipeline.precision == chosen


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "rope"},
        {"positions": "alibi"},
        {"positions": {"kind": "t5"}},
        {"attention": {"pattern": {"kind": "window", "size": 3}}},
        {"attention": {"scale": 1.0}},
    ],
)
def test_int8_is_for_relative_positions_windows_and_scales_where_it_is_asked_for(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.inference.pipeline.int8_is_fast", lambda: True)
    assert small_pipeline(precision="auto", **changes).backend.startswith("packed float32 decoder")
    assert small_pipeline(precision="int8", **changes).backend.startswith("packed int8 decoder")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "options",
    [
        dict(beam=1),
        dict(beam=5, n_best=3),
        dict(beam=4, groups=2),
        dict(sample=True, seed=3),
        dict(coverage_penalty=0.3),
        dict(require=["house"], forbid=["cat"], prefix="Mary"),
        dict(shortlist=True),
    ],
    ids=lambda options: "-".join(options),
)
def test_both_decoders_translate_alike(dtype: torch.dtype, options: dict[str, object]) -> None:
    model, tokenizer = small_model(dtype)
    size = tokenizer.vocab_size
    shortlist = Shortlist({None: Lexicon(np.full((size, 1), -1), np.arange(0, size, 2))})
    pipeline = Translator(model, tokenizer, tokenizer, precision="float", shortlist=shortlist)
    packed = pipeline.translate(TEXTS, to="de", **options)
    model.output.register_forward_hook(lambda *_: None)
    generic = pipeline.translate(TEXTS, to="de", **options)
    assert pipeline.backend == "generic decoder (output has hooks)"
    for one, other in zip(packed, generic, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4 if dtype == torch.float32 else 1e-10)
        assert one.tokens == other.tokens


def general(**changes: object) -> Pipeline:
    """A pipeline of no task in particular."""
    model, tokenizer = small_model(torch.float32, **changes)
    return Pipeline(model, tokenizer, tokenizer, precision="float")


class EncoderOnly(Pipeline):
    kind = "marking"
    shape = "encoder-only"


def test_a_text_is_generated_whole_from_what_its_tokens_are() -> None:
    pipeline = general()
    text = "Tom sees it. Mary likes the house."
    assert pipeline.encoded(text) == [*pipeline.source.encode(text), 2]
    made = pipeline.generate(text, beam=3, n_best=2)
    found = pipeline.decode([pipeline.encoded(text)], beam=3, n_best=2)[0]
    assert made.tokens == [pipeline.target.token(number) for number in found[0].tokens]
    assert [made.score, *(one.score for one in made.alternatives)] == [one.score for one in found]
    assert pipeline.generate([text, text], beam=3, n_best=2) == [made, made]
    assert "".join(pipeline.stream(text, beam=3)) == pipeline.generate(text, beam=3).text
    assert repr(pipeline).startswith("Pipeline(2+2 layers")


def test_a_blank_text_stays_as_it_is() -> None:
    pipeline = general()
    made = pipeline.generate(["", "Tom sees it.", " \t"], beam=2)
    assert [made[0].text, made[2].text] == ["", " \t"]
    assert made[1] == pipeline.generate("Tom sees it.", beam=2)
    assert list(pipeline.stream(" ")) == [" "]


def test_a_given_target_is_scored_and_attends_to_its_source() -> None:
    pipeline = general()
    one = pipeline.score("Tom sees it.", "Mary.")
    (listed,) = pipeline.score(["Tom sees it."], ["Mary."])
    assert one == listed
    record = pipeline.attention("Tom sees it.", "Mary.")
    assert record.source == [pipeline.source.token(number) for number in pipeline.encoded("Tom sees it.")]


def test_a_tag_of_the_task_comes_before_each_source() -> None:
    model, tokenizer = small_model()
    pipeline = Pipeline(model, tokenizer, tokenizer, precision="float", task=TextToTextTask(tag="<2de>"))
    assert pipeline.encoded("Tom sees it.")[0] == tokenizer.number("<2de>")


@pytest.mark.parametrize("backend", ["packed", "generic"])
def test_the_maximum_length_takes_the_place_of_what_follows_from_the_source(backend: str) -> None:
    pipeline = general()
    if backend == "generic":
        pipeline.model.output.register_forward_hook(lambda *_: None)
    assert pipeline.backend.startswith(backend)
    source = pipeline.encoded("Tom sees it.")
    for length in (1, 3, 50):
        (found,) = pipeline.decode([source], beam=2, max_length=length)[0]
        assert len(found.tokens) <= length
        assert found.cut == (len(found.tokens) == length)
    assert pipeline.limit(source) == 2 * len(source) + 10
    assert pipeline.limit(source, pipeline.with_changes({"max_length": 3}), needed=9) == 3
    assert pipeline.limit(source, pipeline.with_changes({"min_length": 70})) == 80


def test_positions_that_have_an_end_are_more_than_a_maximum_length() -> None:
    pipeline = general(positions="learned", max_positions=24)
    assert pipeline.limit([2], pipeline.with_changes({"max_length": 1000})) == 23


def test_a_model_of_an_encoder_alone_has_no_decoding_backend() -> None:
    model, tokenizer = small_model(decoder_layers=0)
    pipeline = EncoderOnly(model, tokenizer, tokenizer)
    assert pipeline.backend == "none: the model has no decoder"
    assert pipeline.precision == "float"
    assert pipeline.identity == EncoderOnly(model, tokenizer, tokenizer).identity
    assert repr(pipeline).startswith("EncoderOnly(2+0 layers")
    source = pipeline.encoded("Tom sees it.")
    assert pipeline.model(torch.tensor([source])).size(1) == len(source)
    calls: list[Callable[[], object]] = [
        lambda: pipeline.generate("Tom sees it."),
        lambda: list(pipeline.stream("Tom sees it.")),
        lambda: pipeline.decode([[5, 2]]),
        lambda: pipeline.limit([5, 2]),
    ]
    for call in calls:
        with pytest.raises(InputError, match="the model is encoder-only; it has no decoder to write with"):
            call()


def test_a_model_of_another_shape_is_refused() -> None:
    model, tokenizer = small_model(decoder_layers=0)
    with pytest.raises(InputError, match="is encoder-only; a translation pipeline needs an encoder and a decoder"):
        Translator(model, tokenizer, tokenizer)
    with pytest.raises(InputError, match="precision int8 is for decoding, and the model has no decoder"):
        EncoderOnly(model, tokenizer, tokenizer, precision="int8")
    model, tokenizer = small_model()
    with pytest.raises(InputError, match="is encoder-decoder; a marking pipeline needs an encoder without a decoder"):
        EncoderOnly(model, tokenizer, tokenizer)
