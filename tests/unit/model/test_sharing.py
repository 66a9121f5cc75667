"""Shared parameters: layers by order, the decoder's with the encoder's, factorized embeddings, halting positions."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

from regard import Transformer, TransformerConfig, accelerate
from regard.acceleration.accelerate import unaccelerate
from regard.acceleration.backend import Backend
from regard.acceleration.snapshot import Snapshot
from regard.decoding import Request, SearchSettings
from regard.errors import ConfigError, InputError, ModelError
from regard.inference.backends import choose_backend
from regard.inference.decode import decode_requests
from regard.inference.generic_decoder import GenericBackend
from regard.layers import AdaptiveDecoder, Halting, SharedLayers
from regard.model.sharing import SHARING, SharingConfig
from regard.training.averaging import average
from regard.training.examples import Batch
from regard.training.losses import cross_entropy
from tests.strategies import tokens

SHARED: list[dict[str, Any]] = [
    {"kind": "all"},
    {"kind": "sequence"},
    {"kind": "cycle", "layers": 2},
    {"kind": "cycle-reversed", "layers": 2},
    {"encoder_decoder": True},
    {"embedding_width": 3},
    {"kind": "cycle", "encoder_decoder": True, "embedding_width": 5},
    {"kind": "all", "act": {"threshold": 0.8, "cost": 0.1}},
]
Step = Callable[[int, Tensor], Tensor]
NAMES = [" ".join(map(str, sharing.values())) for sharing in SHARED]
each_sharing = pytest.mark.parametrize("sharing", SHARED, ids=NAMES)


def config_of(sharing: dict[str, Any] | str, **changes: object) -> TransformerConfig:
    fields = dict(vocab_size=23, d_model=16, num_heads=2, d_ff=24, encoder_layers=4, decoder_layers=4, dropout=0.0)
    return TransformerConfig(**{**fields, "bos_id": 1, "eos_id": 2, "sharing": sharing, **changes})


def model_of(sharing: dict[str, Any], dtype: torch.dtype = torch.float64, **changes: object) -> Transformer:
    torch.manual_seed(3)
    model = Transformer(config_of(sharing, **changes)).to(dtype).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def inputs() -> tuple[Tensor, Tensor]:
    torch.manual_seed(5)
    return tokens(3, 6, 23), tokens(3, 5, 23)


@pytest.mark.parametrize(
    ("kind", "layers", "depth", "order"),
    [
        ("all", None, 4, "1111"),
        ("sequence", None, 6, "112233"),
        ("sequence", 2, 6, "111222"),
        ("cycle", 3, 6, "123123"),
        ("cycle", 4, 6, "123412"),
        ("cycle-reversed", 3, 6, "123321"),
        ("cycle-reversed", 3, 9, "123123321"),
        ("cycle-reversed", 4, 6, "123443"),
        ("cycle-reversed", 6, 12, "123456654321"),
        ("cycle-reversed", 5, 3, "123"),
        ("none", None, 3, "123"),
        ("cycle", None, 0, ""),
    ],
)
def test_orders_are_those_of_the_paper(kind: Any, layers: int | None, depth: int, order: str) -> None:
    """Takase and Kiyono 2021, figure 1 and algorithm 1."""
    assert SharingConfig(kind=kind, layers=layers).order(depth) == tuple(int(digit) - 1 for digit in order)


@given(st.sampled_from(SHARING[2:]), st.integers(1, 7), st.integers(1, 13))
def test_every_distinct_layer_is_applied(kind: Any, layers: int, depth: int) -> None:
    sharing = SharingConfig(kind=kind, layers=layers)
    order = sharing.order(depth)
    assert len(order) == depth
    assert set(order) == set(range(sharing.distinct(depth)))


def unshared(model: Transformer) -> Transformer:
    """Return a model with the same weights in which nothing is shared."""
    plain = Transformer(model.config.model_copy(update={"sharing": SharingConfig()})).to(model.output.weight.dtype)
    for mine, theirs in ((plain.encoder, model.encoder), (plain.decoder, model.decoder)):
        assert mine is not None
        assert theirs is not None
        for number, layer in enumerate(theirs.layers):
            mine.layers[number].load_state_dict(layer.state_dict())
        if mine.final_norm is not None and theirs.final_norm is not None:
            mine.final_norm.load_state_dict(theirs.final_norm.state_dict())
    for name in ("source_embedding", "target_embedding", "output"):
        weights = getattr(model, name).state_dict()
        if "tokens.projection" in weights:
            weights["tokens.weight"] @= weights.pop("tokens.projection").T
        getattr(plain, name).load_state_dict(weights)
    return plain.eval()


@each_sharing
def test_a_shared_model_is_the_deep_model_with_equal_layers(sharing: dict[str, Any]) -> None:
    if "act" in sharing:
        pytest.skip("halting is compared with its own reference")
    model = model_of(sharing)
    source, target = inputs()
    torch.manual_seed(0)
    if "embedding_width" in sharing:
        matrix = model.output.weight @ model.output.projection.T
        states = model.decode(target, model.encode(source))
        torch.testing.assert_close(model.logits(states), states @ matrix.T, rtol=1e-12, atol=1e-12)
        embedded = model.source_embedding.tokens(source)  # type: ignore[union-attr]
        torch.testing.assert_close(embedded, matrix[source] * 4.0, rtol=1e-12, atol=1e-12)
        return
    deep = unshared(model)
    torch.testing.assert_close(model(source, target), deep(source, target), rtol=0, atol=1e-12)
    assert sum(p.numel() for p in model.parameters()) < sum(p.numel() for p in deep.parameters())


@each_sharing
def test_the_gradient_of_a_shared_tensor_is_the_sum_over_its_uses(sharing: dict[str, Any]) -> None:
    """By finite differences along a random direction of all parameters."""
    model = model_of(sharing)
    source, target = inputs()
    loss = model(source, target).log_softmax(-1)[..., 3].sum()
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    directions = [torch.randn_like(parameter) for parameter in model.parameters()]
    slope = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
    step = 1e-6
    values = []
    with torch.no_grad():
        for sign in (1, -1):
            moved = copy.deepcopy(model)
            for parameter, direction in zip(moved.parameters(), directions, strict=True):
                parameter.add_(direction, alpha=sign * step)
            values.append(moved(source, target).log_softmax(-1)[..., 3].sum())
    assert float(slope) == pytest.approx(float(values[0] - values[1]) / (2 * step), rel=1e-5)


@each_sharing
def test_functional_call_takes_and_gives_back_the_parameters(sharing: dict[str, Any]) -> None:
    model = model_of(sharing)
    before, kept = model(*inputs()), dict(model.named_parameters())
    halves = {name: parameter.detach() / 2 for name, parameter in model.named_parameters()}
    called = functional_call(model, halves, inputs())
    assert all(parameter is kept[name] for name, parameter in model.named_parameters())
    assert all(id(p) in {id(k) for k in kept.values()} for p in model.state_dict(keep_vars=True).values())
    assert model(*inputs()).equal(before)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.div_(2)
    assert called.equal(model(*inputs()))


@each_sharing
def test_a_shared_tensor_is_saved_counted_and_averaged_once(tmp_path: Path, sharing: dict[str, Any]) -> None:
    model = model_of(sharing)
    model.save(tmp_path / "a")
    loaded = Transformer.load(tmp_path / "a")
    assert loaded.config == model.config
    assert loaded(*inputs()).equal(model(*inputs()))
    count = sum(parameter.numel() for parameter in model.parameters())
    assert f"{count:,} parameters" in model.describe()
    assert all(len(line) <= 80 for line in model.describe().splitlines())
    assert sum(tensor.numel() for tensor in average([tmp_path / "a", tmp_path / "a"]).tensors.values()) == count
    optimizer = torch.optim.AdamW(model.parameters())
    assert sum(p.numel() for group in optimizer.param_groups for p in group["params"]) == count


def test_a_directory_with_another_number_of_layers_is_refused(tmp_path: Path) -> None:
    model_of({"kind": "cycle", "layers": 2}).save(tmp_path)
    text = (tmp_path / "config.json").read_text()
    assert text.count('"layers": 2') == 1
    (tmp_path / "config.json").write_text(text.replace('"layers": 2', '"layers": 3'))
    with pytest.raises(ModelError, match=r"encoder_layers 4 \(3 of them distinct\), and its weights have 2"):
        Transformer.load(tmp_path)


def test_layers_start_as_small_as_the_depth_asks_for() -> None:
    """Of twelve sublayers that are all one, each adds a twelfth of the variance."""
    model = Transformer(config_of("all", d_model=64, d_ff=256, encoder_layers=6, decoder_layers=0))
    layer: Any = model.encoder.layers[0]  # type: ignore[union-attr]
    bound = (6 / (64 + 64)) ** 0.5
    assert layer.self_attention.query.weight.abs().max().item() == pytest.approx(bound, rel=0.05)
    assert layer.self_attention.output.weight.abs().max().item() == pytest.approx(bound * 12**-0.5, rel=0.05)


def test_factorized_embeddings_start_with_the_variance_of_plain_ones() -> None:
    model = Transformer(config_of({"embedding_width": 32}, vocab_size=2000, d_model=64))
    embedded = model.source_embedding.tokens(torch.arange(2000)[None])  # type: ignore[union-attr]
    assert embedded.var().item() == pytest.approx(1.0, rel=0.1)
    assert model.output(torch.randn(1, 50, 64)).var().item() == pytest.approx(1.0, rel=0.15)


@each_sharing
def test_accelerated_training_has_the_same_loss_and_gradients(sharing: dict[str, Any]) -> None:
    model = model_of(sharing, torch.float32, d_model=32, d_ff=64).train()
    source, target = inputs()
    batch = Batch(source, target, target.roll(-1, 1), torch.arange(3), 15)
    found = []
    for _ in range(2):
        loss = cross_entropy()(model, batch)
        found.append((loss.detach(), torch.autograd.grad(loss, list(model.parameters()))))
        accelerate(model)
    unaccelerate(model)
    assert float(found[0][0]) == pytest.approx(float(found[1][0]), rel=1e-5)
    scale = max(float(gradient.abs().max()) for gradient in found[0][1])
    for plain, fast in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(plain, fast, rtol=1e-4, atol=1e-5 * scale)


@each_sharing
@pytest.mark.parametrize("precision", ["float", "int8"])
def test_decoders_agree(sharing: dict[str, Any], precision: Any) -> None:
    model = model_of(sharing, torch.float32, d_model=32, d_ff=64)
    sources = [row.tolist() for row in inputs()[0]]
    if "act" in sharing:
        if precision == "int8":
            with pytest.raises(InputError, match=r"is a regard\.layers\.adaptive\.AdaptiveEncoder"):
                choose_backend(model, precision)
        else:
            assert "generic decoder" in choose_backend(model).name
        return
    backend = choose_backend(model, precision)
    assert "packed" in backend.name
    if precision == "float":
        reference: Backend = GenericBackend(model)
    elif "embedding_width" in sharing:
        return  # its matrix is rounded after the two are multiplied: there is no other model to compare with
    else:
        reference = choose_backend(unshared(model), precision)
    requests, search = [Request(limit=8)] * len(sources), SearchSettings(beam=3)
    expected, packed = (decode_requests(one, sources, requests, search) for one in (reference, backend))
    for one, other in zip(expected, packed, strict=True):
        assert [found.tokens for found in one] == [found.tokens for found in other]
        assert [found.score for found in one] == pytest.approx([found.score for found in other], abs=1e-4)


def test_a_changed_order_is_noticed() -> None:
    """A pipeline packs the weights again once a model has changed."""
    model = model_of({"kind": "cycle", "layers": 2})
    before = Snapshot(model)
    layers = model.decoder.layers  # type: ignore[union-attr]
    assert isinstance(layers, SharedLayers)
    layers.order = layers.order[::-1]
    assert not before.is_current()


def naive_halting(halting: Halting, x_D: Tensor, steps: int, step: Step) -> tuple[Tensor, Tensor]:
    """Return the output and the cost of one position alone."""
    output, reached = torch.zeros_like(x_D), torch.zeros((), dtype=x_D.dtype)
    for number in range(1, steps + 1):
        probability = torch.sigmoid(halting.probability(x_D))[0]
        x_D = step(number - 1, x_D)
        if reached + probability > halting.threshold or number == steps:
            break
        output, reached = output + probability * x_D, reached + probability
    return output + (1 - reached) * x_D, halting.cost * (number + 1 - reached)


@settings(max_examples=30)
@given(st.integers(1, 5), st.sampled_from([0.3, 0.8, 0.99]), st.integers(0, 1000))
def test_halting_is_that_of_the_paper(steps: int, threshold: float, seed: int) -> None:
    torch.manual_seed(seed)
    halting = Halting(4, threshold=threshold, cost=0.1).double()
    nn.init.normal_(halting.probability.weight)
    matrices = torch.randn(steps, 4, 4, dtype=torch.float64)
    x_BTD = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)

    def step(number: int, x: Tensor) -> Tensor:
        return torch.tanh(x @ matrices[number])

    costs: list[Tensor] = []
    found = halting(x_BTD, steps, step, costs).flatten(0, 1), costs[0].flatten()
    pairs = [naive_halting(halting, x_D, steps, step) for x_D in x_BTD.flatten(0, 1)]
    expected = torch.stack([output for output, _ in pairs]), torch.stack([cost for _, cost in pairs])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    some, leaves = torch.randn(6, 4, dtype=torch.float64), [x_BTD, *halting.parameters()]
    gradients = (
        torch.autograd.grad((output * some).sum() + cost.sum() + 0 * sum(leaf.sum() for leaf in leaves), leaves)
        for output, cost in (found, expected)
    )
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


def test_the_training_loss_has_the_ponder_cost_of_real_tokens() -> None:
    model = model_of({"kind": "all", "act": {"threshold": 0.8, "cost": 0.25}})
    source, target = inputs()
    source[1, 4:] = 0
    labels = target.roll(-1, 1)
    labels[2, 3:] = 0
    batch = Batch(source, target, labels, torch.arange(3), 13)
    costs: list[Tensor] = []
    memory = model.encode(source, costs=costs)
    states = model.decode(target, memory, costs=costs)
    ponder = costs[0][source != 0].sum() + costs[1][labels != 0].sum()
    plain = model.output.loss(states[labels != 0], labels[labels != 0], smoothing=0.1)
    assert cross_entropy()(model, batch).item() == pytest.approx((plain + ponder).item(), rel=1e-12)
    assert ponder.item() > 0.25 * ((source != 0).sum() + (labels != 0).sum())
    assert isinstance(model.decoder, AdaptiveDecoder)


def test_positions_stop_at_different_steps_and_batch_mates_change_nothing() -> None:
    model = model_of({"kind": "all", "act": {"threshold": 0.7, "cost": 1.0}})
    source, target = inputs()
    costs: list[Tensor] = []
    states = model.decode(target, model.encode(source), costs=costs)
    assert len({int(cost) for cost in costs[0].flatten()}) > 1
    for row in range(3):
        alone = model.decode(target[row : row + 1], model.encode(source[row : row + 1]))
        torch.testing.assert_close(alone[0], states[row], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("sharing", "changes", "message"),
    [
        ("cycle-reverse", {}, "sharing: sharing 'cycle-reverse' is not known; did you mean cycle-reversed?"),
        ({"kind": "circle"}, {}, "sharing 'circle' is not known; did you mean cycle"),
        ({"kind": "all", "layers": 2}, {}, "layers is 2, which is for sequence, cycle and cycle-reversed; kind is all"),
        ({"kind": "cycle", "layers": 5}, {}, "sharing.layers is 5, more than the 4 layers of a stack"),
        ({"kind": "cycle", "layers": 0}, {}, "sharing.layers is 0"),
        ({"kind": "cycle", "act": {}}, {}, "act is for one layer applied many times, kind all; kind is cycle"),
        ({"kind": "all", "act": {"threshold": 1.0}}, {}, "sharing.act.threshold is 1.0"),
        ({"encoder_decoder": True}, {"decoder_layers": 2}, "encoder_layers is 4 and decoder_layers 2"),
        ({"encoder_decoder": True}, {"encoder_layers": 0}, "encoder_layers is 0 and decoder_layers 4"),
        ({"layer": 2}, {}, "sharing.layer is not a known key; did you mean layers?"),
    ],
)
def test_what_does_not_fit_is_refused(sharing: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config_of(sharing, **changes)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
