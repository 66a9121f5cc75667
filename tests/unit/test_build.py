"""A model with modules of one's own is trained and loaded with `build`, and never taken for a plain one."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard import ModelError, Transformer, TransformerConfig
from regard.cli import main
from regard.errors import ConfigError
from regard.layers import FeedForward
from regard.model.directory import read_model_directory
from regard.training import Run
from regard.training.checkpoints import read_checkpoint, step_directories, step_of, write_checkpoint
from regard.training.examples import Batch
from regard.training.losses import cross_entropy
from tests.unit.models import SENTENCES, save_small_model, small_model
from tests.unit.training.runs import SMALL, Notes, small_run


class Doubled(FeedForward):
    """Has the parameters of its base, and another function."""

    def forward(self, x: Tensor) -> Tensor:
        return 2.0 * super().forward(x)


NAME = f"{Doubled.__module__}.Doubled"


def build(config: TransformerConfig) -> Transformer:
    model = Transformer(config)
    for module in model.modules():
        if type(module) is FeedForward:
            module.__class__ = Doubled
    return model


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small_run(tmp_path_factory.mktemp("build"), "averaging.kind=last", "averaging.count=2")


@pytest.fixture(scope="module")
def trained(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return regard.train(run, tmp_path_factory.mktemp("build") / "out", build=build)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = save_small_model(tmp_path / "model")
    plain, _ = small_model()
    changed = build(plain.config)
    changed.load_state_dict(plain.state_dict())
    changed.save(path)
    return path


def test_its_modules_are_named_and_it_is_loaded_with_build_alone(saved: Path) -> None:
    assert json.loads((saved / "config.json").read_text())["modules"] == [NAME]
    for load in (regard.load, Transformer.load):
        with pytest.raises(ModelError, match=f"modules that its configuration does not describe: {NAME}; .*build="):
            load(saved)
    pipeline = regard.load(saved, build=build)
    assert pipeline.backend == f"generic decoder (encoder.layers.0.feed_forward is a {NAME})"
    assert pipeline.precision == "float"
    plain = regard.Translator(*small_model(), small_model()[1], precision="float")
    assert pipeline.translate(SENTENCES[:9], to="de") != plain.translate(SENTENCES[:9], to="de")
    for text in SENTENCES[:9]:
        made = pipeline.translate(text, to="de", beam=4)
        numbers = [pipeline.target.number(token) for token in made.tokens]
        (logs,) = pipeline.token_log_probabilities([(pipeline.encoded(text, "de"), numbers)])
        assert sum(logs) / len(logs) == pytest.approx(made.score, abs=1e-4)


def test_training_keeps_the_names_in_the_model_and_its_snapshots(trained: Path) -> None:
    for path in (trained, *step_directories(trained / "snapshots")):
        assert read_model_directory(path).modules == (NAME,)
        with pytest.raises(ModelError, match=NAME):
            Transformer.load(path)
    loaded = Transformer.load(trained, build=build)
    assert any(type(module) is Doubled for module in loaded.modules())


@pytest.mark.parametrize(
    "command",
    [
        ("evaluate", "MODEL"),
        ("describe", "MODEL"),
        ("translate", "--model", "MODEL", "--input", "INPUT"),
        ("score", "--model", "MODEL", "--input", "INPUT"),
        ("export", "MODEL", "--to", "onnx", "-o", "OUT"),
    ],
    ids=lambda command: command[0],
)
def test_the_command_line_refuses_it_by_name(
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
) -> None:
    (tmp_path / "input").write_text("2001-02-03\n")
    places = {"MODEL": trained, "INPUT": tmp_path / "input", "OUT": tmp_path / "out"}
    assert call(monkeypatch, *(places.get(word, word) for word in command)) == 4
    assert NAME in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_average_keeps_the_names(
    trained: Path, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "average", trained, "--last", "2", "-o", tmp_path / "mean") == 0
    assert read_model_directory(tmp_path / "mean").modules == (NAME,)
    plain = save_small_model(tmp_path / "plain")
    assert call(monkeypatch, "average", plain, saved, "-o", tmp_path / "mixed") == 4
    assert "only like models have a mean" in capsys.readouterr().err


def test_a_run_is_resumed_with_the_modules_that_it_was_trained_with(run: Run, tmp_path: Path) -> None:
    longer = run.model_copy(update={"training": run.training.model_copy(update={"steps": 18})})
    whole = regard.train(longer, tmp_path / "whole", build=build)
    out = regard.train(run, tmp_path / "out", build=build)
    with pytest.raises(
        ConfigError, match=f"trained with other modules: {NAME}; now they are those of its configuration"
    ):
        regard.train(longer, out)
    regard.train(longer, out, build=build)
    resumed, expected = read_model_directory(out), read_model_directory(whole)
    assert all(tensor.equal(expected.tensors[name]) for name, tensor in resumed.tensors.items())
    plain = regard.train(run, tmp_path / "plain")
    with pytest.raises(ConfigError, match=f"those of its configuration; now they are {NAME}"):
        regard.train(longer, plain, build=build)


def test_a_run_starts_from_it_with_build_alone(trained: Path, tmp_path: Path) -> None:
    text = SMALL.replace('[model]\npreset = "tiny"', "[model]").replace(
        "steps = 14", f'steps = 2\nstart_from = "{trained}"'
    )
    for line in ("d_model = 16", "d_ff = 32", "num_heads = 2", "encoder_layers = 1", "decoder_layers = 1"):
        text = text.replace(f"{line}\n", "", 1)
    again = Run.from_toml(text, base=tmp_path)
    with pytest.raises(ModelError, match=NAME):
        regard.train(again, tmp_path / "out")
    with pytest.raises(ModelError, match=rf"was saved with the modules {NAME}, but build makes {__name__}\.Tripled"):
        regard.train(again, tmp_path / "out", build=build_tripled)
    assert read_model_directory(regard.train(again, tmp_path / "out", build=build)).modules == (NAME,)


class Head(nn.Module):
    """An output projection that shares nothing with regard's."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.hidden = nn.Linear(config.d_model, 8)
        self.logits = nn.Linear(8, config.vocab_size)

    def forward(self, states: Tensor) -> Tensor:
        logits: Tensor = self.logits(self.hidden(states).relu())
        return logits


def test_parameters_may_have_any_names(tmp_path: Path) -> None:
    def with_head(config: TransformerConfig) -> Transformer:
        model = Transformer(config)
        model.output = Head(config)
        return model

    path = save_small_model(tmp_path / "model")
    torch.manual_seed(3)
    model = with_head(small_model()[0].config).eval()
    model.save(path)
    with pytest.raises(ModelError, match=r"\.Head; "):
        regard.load(path)
    pipeline = regard.load(path, build=with_head)
    assert "output is a" in pipeline.backend
    source, target = torch.randint(3, 99, (2, 5)), torch.randint(3, 99, (2, 4))
    assert pipeline.model(source, target).equal(model(source, target))
    assert pipeline.translate(SENTENCES[0], to="de", beam=2).score < 0.0


@pytest.mark.parametrize("module", [nn.Identity(), nn.Dropout(0.5)])
def test_torchs_modules_in_the_place_of_regards_are_named(tmp_path: Path, module: nn.Module) -> None:
    model, _ = small_model()
    model.decoder.layers[0].feed_forward_residual.dropout = module  # type: ignore[union-attr]
    model.save(tmp_path)
    with pytest.raises(ModelError, match=rf"torch\.nn\..*\.{type(module).__name__}; "):
        Transformer.load(tmp_path)


@pytest.mark.parametrize(
    ("modules", "says"),
    [
        ('["a.B\\u001b[31m\\n"]', r"'a\.B\\x1b\[31m\\n'"),
        (json.dumps([f"a.B{number}" for number in range(9)]), r"a\.B0, a\.B1, a\.B2 and 6 more"),
        ('"a.B"', "modules is not a list of names"),
        ("[1]", "modules is not a list of names"),
    ],
)
def test_names_from_elsewhere_are_text_and_no_more(tmp_path: Path, modules: str, says: str) -> None:
    path = save_small_model(tmp_path / "model")
    content = (path / "config.json").read_text().rstrip().removesuffix("}")
    (path / "config.json").write_text(f'{content}, "modules": {modules}}}')
    with pytest.raises(ModelError, match=says):
        regard.load(path)


def test_a_build_that_returns_no_model_is_named(run: Run, trained: Path, tmp_path: Path) -> None:
    def forgetful(config: TransformerConfig) -> Any:
        Transformer(config)

    with pytest.raises(ModelError, match="build returned a NoneType"):
        regard.train(run, tmp_path / "out", build=forgetful)
    with pytest.raises(ModelError, match="build returned a NoneType"):
        regard.load(trained, build=forgetful)


def test_a_buffer_that_would_not_be_saved_is_refused(run: Run, tmp_path: Path) -> None:
    def with_buffer(config: TransformerConfig) -> Transformer:
        model = Transformer(config)
        model.output.register_buffer("seen", torch.zeros(3))
        model.output.register_buffer("constant", torch.zeros(3), persistent=False)
        return model

    with pytest.raises(ModelError, match=r"output\.seen is a buffer, and only parameters are saved"):
        regard.train(run, tmp_path / "out", build=with_buffer)
    with pytest.raises(ModelError, match=r"output\.seen is a buffer"):
        with_buffer(small_model()[0].config).save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_what_is_no_weight_is_refused(tmp_path: Path) -> None:
    model, _ = small_model()
    model.output.steps = nn.Parameter(torch.tensor([3]), requires_grad=False)
    with pytest.raises(ModelError, match=r"output\.steps is torch\.int64"):
        model.save(tmp_path / "saved")
    model.output.steps = nn.Parameter(torch.tensor([True]), requires_grad=False)
    with pytest.raises(ModelError, match=r"output\.steps is torch\.bool"):
        model.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


class Counting(FeedForward):
    """Has a state that is no parameter."""

    def get_extra_state(self) -> dict[str, int]:
        return {"seen": 3}


def test_an_extra_state_is_refused(tmp_path: Path) -> None:
    model, _ = small_model()
    model.decoder.layers[0].feed_forward.__class__ = Counting  # type: ignore[union-attr]
    with pytest.raises(ModelError, match=r"decoder\.layers\.0\.feed_forward has a get_extra_state"):
        model.save(tmp_path / "saved")


class Tripled(FeedForward):
    """Has the parameters of its base, and yet another function."""

    def forward(self, x: Tensor) -> Tensor:
        return 3.0 * super().forward(x)


def build_tripled(config: TransformerConfig) -> Transformer:
    model = build(config)
    for module in model.modules():
        if isinstance(module, FeedForward):
            module.__class__ = Tripled
    return model


def test_a_build_that_makes_other_modules_than_those_saved_is_refused(saved: Path, tmp_path: Path) -> None:
    for other, says in ((build_tripled, rf"{__name__}\.Tripled"), (Transformer, "those of its configuration")):
        with pytest.raises(ModelError, match=f"was saved with the modules {NAME}, but build makes {says}"):
            Transformer.load(saved, build=other)
    content = json.loads((saved / "config.json").read_text())
    del content["modules"]
    (saved / "config.json").write_text(json.dumps(content))
    Transformer.load(saved, build=build_tripled)


def test_a_build_that_returns_the_same_model_again_is_refused(run: Run, tmp_path: Path) -> None:
    made: list[Transformer] = []

    def same(config: TransformerConfig) -> Transformer:
        made.append(made[0] if made else Transformer(config))
        return made[-1]

    with pytest.raises(ConfigError, match="build must return a new model each time"):
        regard.train(run, tmp_path / "one", build=same)

    def with_same_encoder(config: TransformerConfig) -> Transformer:
        model = Transformer(config)
        model.encoder = made[0].encoder
        return model

    with pytest.raises(ConfigError, match="build must return a new model each time"):
        regard.train(run, tmp_path / "other", build=with_same_encoder)


def doubled_loss(model: Transformer, batch: Batch) -> Tensor:
    return 2.0 * cross_entropy()(model, batch)


def test_a_run_is_resumed_with_the_loss_that_it_was_trained_with(run: Run, tmp_path: Path) -> None:
    longer = run.model_copy(update={"training": run.training.model_copy(update={"steps": 18})})
    out = regard.train(run, tmp_path / "out", loss=doubled_loss)
    name = rf"{__name__}\.doubled_loss"
    with pytest.raises(ConfigError, match=f"was trained with the loss {name}; now it is that of its run"):
        regard.train(longer, out)
    with pytest.raises(ConfigError, match=rf"with the loss {name}; now it is .*cross_entropy\.<locals>\.loss"):
        regard.train(longer, out, loss=cross_entropy(0.0))
    regard.train(longer, out, loss=doubled_loss)
    plain = regard.train(run, tmp_path / "plain")
    with pytest.raises(ConfigError, match=f"with the loss that of its run; now it is {name}"):
        regard.train(longer, plain, loss=doubled_loss)


def test_a_checkpoint_without_the_name_of_its_loss_is_resumed(run: Run, tmp_path: Path) -> None:
    out = regard.train(run, tmp_path / "out", loss=doubled_loss)
    for path in step_directories(out / "checkpoints"):
        found = read_checkpoint(path)
        state = {name: value for name, value in found.state.items() if name != "loss"}
        shutil.rmtree(path)
        write_checkpoint(path.parent, step_of(path), state, found.tensors)
    regard.train(run, out)


def test_training_says_which_modules_run_as_they_are_written(run: Run, tmp_path: Path) -> None:
    notes = Notes()
    regard.train(run, tmp_path / "out", build=build, callback=notes)
    assert f"not in the configuration, and run as they are written: {NAME}" in notes.sentences
