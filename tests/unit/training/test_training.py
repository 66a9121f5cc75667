"""A run in a directory: it learns, ends, resumes to the same bits, and says what is wrong."""

import json
import os
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from regard import MultiHeadAttention, Transformer, TransformerConfig, train
from regard.data import Tokenizer
from regard.data.tokenizer import TOKENIZER
from regard.errors import ConfigError, DataError, DivergedError, ModelError, NoSpaceError, StoppedError, WriteError
from regard.layers import Dropout
from regard.training import Run, checkpoints
from regard.training.callbacks import StepReport, is_validation, read_metrics
from regard.training.checkpoints import read_checkpoint, step_directories
from regard.training.examples import Batch
from regard.training.losses import Loss, cross_entropy
from tests.unit.training.runs import SMALL, Notes, small_run

Tensor = torch.Tensor


def weights(directory: Path) -> dict[str, Tensor]:
    return load_file(directory / "model.safetensors")


def assert_same(one: Path, other: Path) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name in first:
        assert first[name].equal(second[name]), name


class StoppingAt(Notes):
    """Asks for an end when a step is reported."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self._step = step

    def on_step(self, report: StepReport, total: int) -> None:
        super().on_step(report, total)
        if report.step == self._step:
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_run_ends_as_a_model_directory(tmp_path: Path) -> None:
    notes = Notes()
    out = train(small_run(tmp_path, "validation.metric=exact"), tmp_path / "out", callback=notes)
    assert {"config.json", "model.safetensors", "tokenizer.json", "generation.json", "README.md", "run.json"} <= {
        path.name for path in out.iterdir()
    }
    assert Transformer.load(out).config.eos_id == 2
    assert [path.name for path in step_directories(out / "checkpoints")] == ["step-0000012", "step-0000014"]
    assert [step for step, _, _ in notes.judgements] == [6, 12, 14]
    assert "1 process of 1 thread, float32, memory by" in notes.sentences[0]
    assert any("dropout 0.2 is applied as 51/256" in sentence for sentence in notes.sentences)
    lines = read_metrics(out / "metrics.jsonl")
    assert [line["step"] for line in lines if line["kind"] == "validation"] == [6, 12, 14]
    assert [line["kind"] for line in lines].count("steps") >= 1


def test_the_same_seed_gives_the_same_weights_and_another_does_not(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(small_run(tmp_path, f"training.seed={seed}"), tmp_path / name)
    assert_same(tmp_path / "a", tmp_path / "b")
    with pytest.raises(AssertionError):
        assert_same(tmp_path / "a", tmp_path / "c")


@pytest.mark.parametrize("stop", [3, 4, 9])
@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("training.accumulate=2", "averaging.kind=running", "training.epochs=3"),
        (
            "training.workers=1",
            "training.subword_dropout=0.2",
            "training.dropout_rise=7",
            "training.curriculum=9",
            "averaging.kind=last",
        ),
        ("training.precision=int8", "training.softmax_gradient=sampled"),
        ("training.r_drop=1.0", "training.softmax_gradient=sampled", "averaging.kind=best", "averaging.count=2"),
        ("training.r_drop=1.0", "training.r_drop_from=5"),
        ("model.random_positions=200", "model.positions=rope"),
        ("model.random_positions=200", "training.accumulate=2"),
        ("model.positions=t5",),
    ],
)
def test_stopped_and_resumed_is_the_same_to_the_bit(tmp_path: Path, stop: int, changes: tuple[str, ...]) -> None:
    run = small_run(tmp_path, "training.report_every=1", *changes)
    train(run, tmp_path / "whole")
    with pytest.raises(StoppedError, match="run the same command to resume") as stopped:
        train(run, tmp_path / "cut", callback=StoppingAt(stop))
    assert stopped.value.exit_code == 143
    train(run, tmp_path / "cut")
    assert_same(tmp_path / "whole", tmp_path / "cut")
    told = [
        [
            (line["step"], line["loss"])
            for line in read_metrics(tmp_path / name / "metrics.jsonl")
            if is_validation(line)
        ]
        for name in ("whole", "cut")
    ]
    assert told[0] == told[1] != []


def test_the_scale_of_float16_losses_is_resumed(tmp_path: Path) -> None:
    """A scale that overflows is halved; a resumed run goes on with the scale that it had come to."""

    def large(model: Transformer, batch: Batch) -> Tensor:
        return 300 * cross_entropy()(model, batch)

    run = small_run(tmp_path, "training.precision=float16", "training.report_every=1")
    notes = Notes()
    train(run, tmp_path / "whole", loss=large, callback=notes)
    assert any(report.skipped for report in notes.reports)
    stopping = StoppingAt(9)
    with pytest.raises(StoppedError):
        train(run, tmp_path / "cut", loss=large, callback=stopping)
    train(run, tmp_path / "cut", loss=large)
    assert_same(tmp_path / "whole", tmp_path / "cut")


def test_two_passes_begin_at_their_step(tmp_path: Path) -> None:
    """Up to then all is as without them, and from then on nothing is."""
    losses = []
    for changes in ((), ("training.r_drop=9.0", "training.r_drop_from=5")):
        notes = Notes()
        run = small_run(tmp_path, "training.steps=7", "training.report_every=1", *changes)
        train(run, tmp_path / f"{len(changes)}", callback=notes)
        losses.append([report.loss for report in notes.reports])
    same = [one == two for one, two in zip(*losses, strict=True)]
    assert same == [True] * 4 + [False] * 3


def test_dropout_rises_to_its_rate_and_stays_there(tmp_path: Path) -> None:
    rates: list[set[float]] = []

    def counting_loss(model: Transformer, batch: Batch) -> Tensor:
        rates.append({layer.rate for layer in model.modules() if isinstance(layer, Dropout)})
        return cross_entropy()(model, batch)

    run = small_run(tmp_path, "model.dropout=0.4", "training.dropout_rise=3", "training.steps=6")
    train(run, tmp_path / "out", loss=counting_loss)
    assert [max(some) for some in rates] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    train(run, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    newest = step_directories(tmp_path / "cut" / "checkpoints")[-1]
    damaged = newest / "weights-0-of-1.safetensors"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    notes = Notes()
    train(run, tmp_path / "cut", callback=notes)
    assert any("hash is another one" in sentence for sentence in notes.sentences)
    assert any("resumed at step 12 of 14" in sentence for sentence in notes.sentences)
    assert_same(tmp_path / "whole", tmp_path / "cut")

    for path in step_directories(tmp_path / "cut" / "checkpoints"):
        (path / "manifest.json").write_text("{")
    with pytest.raises(ModelError, match="none of its 2 checkpoints is whole"):
        train(run, tmp_path / "cut")


def test_another_run_does_not_take_a_directory_over(tmp_path: Path) -> None:
    out = tmp_path / "out"
    train(small_run(tmp_path), out)
    with pytest.raises(ConfigError, match=r"training\.seed was 1 there and is 2 here"):
        train(small_run(tmp_path, "training.seed=2"), out)
    with pytest.raises(ConfigError, match=r"model\.d_model was 16 there and is 32 here"):
        train(small_run(tmp_path, "model.d_model=32"), out)
    (out / "run.json").unlink()
    with pytest.raises(ConfigError, match="holds a model that no run made"):
        train(small_run(tmp_path), out)


def test_a_run_may_go_on_for_longer(tmp_path: Path) -> None:
    train(small_run(tmp_path, "training.steps=6"), tmp_path / "out")
    train(small_run(tmp_path, "checkpoints.every=3"), tmp_path / "out")
    train(small_run(tmp_path), tmp_path / "whole")
    assert_same(tmp_path / "out", tmp_path / "whole")
    run = small_run(tmp_path, "schedule.kind=linear")
    train(run, tmp_path / "linear")
    with pytest.raises(ConfigError, match=r"training\.steps was 14"):
        train(small_run(tmp_path, "schedule.kind=linear", "training.steps=20"), tmp_path / "linear")


def test_other_data_is_noticed(tmp_path: Path) -> None:
    for name, text in (("a", "one two\nthree\n"), ("b", "eins zwei\ndrei\n")):
        (tmp_path / name).write_text(text)
    corpus = 'data.train=[{kind="parallel", source="a", target="b"}]'
    run = small_run(tmp_path, corpus, "training.steps=2", "data.valid=[]")
    train(run, tmp_path / "out")
    (tmp_path / "b").write_text("eins zwei\nvier\n")
    with pytest.raises(ConfigError, match="trained on other data"):
        train(run, tmp_path / "out")


def test_steps_that_are_not_finite_are_left_out_and_ten_end_the_run(tmp_path: Path) -> None:
    calls = iter(range(1, 100))

    def sometimes(bad: set[int]) -> Loss:
        def loss(model: Transformer, batch: Batch) -> Tensor:
            value = cross_entropy()(model, batch)
            return value * float("nan") if next(calls) in bad else value

        return loss

    notes = Notes()
    out = train(small_run(tmp_path), tmp_path / "few", loss=sometimes({3, 4, 9}), callback=notes)
    assert sum(report.skipped for report in notes.reports) == 3
    assert all(torch.isfinite(tensor).all() for tensor in weights(out).values())

    calls = iter(range(1, 100))
    with pytest.raises(
        DivergedError, match=r"in 10 steps in a row, up to step 12; the weights .*step-0000012"
    ) as found:
        train(small_run(tmp_path), tmp_path / "many", loss=sometimes(set(range(3, 100))))
    assert found.value.exit_code == 5
    kept = read_checkpoint(tmp_path / "many" / "checkpoints" / "step-0000012")
    assert all(torch.isfinite(tensor).all() for tensor in kept.tensors["weights"].values())


def test_a_full_disk_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = small_run(tmp_path)
    train(run, tmp_path / "whole")
    written = iter(range(100))
    usage = shutil.disk_usage(tmp_path)

    def full(path: object) -> object:
        return usage._replace(free=10) if next(written) == 1 else usage

    monkeypatch.setattr(shutil, "disk_usage", full)
    with pytest.raises(NoSpaceError, match=r"0\.0 MB free; 0\.\d MB are needed"):
        train(run, tmp_path / "cut")
    assert [path.name for path in (tmp_path / "cut" / "checkpoints").iterdir()] == ["step-0000004"]
    monkeypatch.undo()
    train(run, tmp_path / "cut")
    assert_same(tmp_path / "whole", tmp_path / "cut")


def test_a_disk_that_fills_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "save_file", no_room)
    with pytest.raises(NoSpaceError, match="MB are needed"):
        train(small_run(tmp_path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_patience_ends_a_run(tmp_path: Path) -> None:
    notes = Notes()
    changes = ("validation.patience=2", "validation.every=2", "schedule.peak=1e-30", "training.steps=40")
    train(small_run(tmp_path, *changes), tmp_path / "out", callback=notes)
    assert [step for step, _, best in notes.judgements if best][:1] == [2]
    assert len(notes.judgements) < 10


def test_averages_are_means_of_snapshots(tmp_path: Path) -> None:
    run = small_run(tmp_path, "averaging.kind=last", "averaging.count=2", "data.valid=[]")
    out = train(run, tmp_path / "out")
    snapshots = step_directories(out / "snapshots")[-2:]
    assert [path.name for path in snapshots] == ["step-0000012", "step-0000014"]
    for name, tensor in weights(out).items():
        expected = torch.stack([weights(path)[name].double() for path in snapshots]).mean(0)
        torch.testing.assert_close(tensor, expected.float(), rtol=0, atol=0)


def test_a_second_signal_leaves_at_once(tmp_path: Path) -> None:
    import subprocess
    import sys

    program = (
        "import os, signal\n"
        "from regard.training.signals import stop_on_signals\n"
        "with stop_on_signals() as stop:\n"
        "    stop.after_step = True\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    assert stop.signal == signal.SIGINT\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "print('still here')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (143, "")


def test_a_directory_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="file/out cannot be written: Not a directory"):
        train(small_run(tmp_path), tmp_path / "file" / "out")


def test_state_is_json_and_safetensors(tmp_path: Path) -> None:
    out = train(small_run(tmp_path), tmp_path / "out")
    newest = step_directories(out / "checkpoints")[-1]
    assert {path.suffix for path in newest.iterdir()} == {".json", ".safetensors"}
    state = json.loads((newest / "state.json").read_text())
    assert state["progress"]["step"] == 14
    assert {"torch", "cpu", "threads", "precision", "processes", "sharded"} == state["environment"].keys()


@pytest.mark.parametrize(
    "change", ["training.precision=bfloat16", "training.precision=int8", "training.softmax_gradient=sampled"]
)
def test_what_computes_less_learns_the_same(tmp_path: Path, change: str) -> None:
    losses = []
    for name, changes in (("plain", ()), ("changed", (change,))):
        notes = Notes()
        changes = (*changes, "training.steps=40", "validation.every=40")
        out = train(small_run(tmp_path, *changes), tmp_path / name, callback=notes)
        losses.append(notes.judgements[-1][1].loss)
        assert all(tensor.dtype == torch.float32 for tensor in weights(out).values())
    assert losses[0] < 5.5
    assert losses[1] != losses[0]
    assert losses[1] == pytest.approx(losses[0], abs=0.05)


def test_a_loss_of_ones_own(tmp_path: Path) -> None:
    """The model is handed over whole: this one is trained to say nothing but ends."""

    def only_ends(model: Transformer, batch: Batch) -> Tensor:
        logits = model(batch.source_BS, batch.target_BT)
        ends: Tensor = logits.log_softmax(-1)[..., 2]
        return -ends.sum()

    notes = Notes()
    train(
        small_run(tmp_path, "training.steps=30", "schedule.peak=1e-2"), tmp_path / "out", loss=only_ends, callback=notes
    )
    assert notes.reports[-1].loss < notes.reports[0].loss


def test_a_tokenizer_with_other_special_numbers_is_refused(tmp_path: Path) -> None:
    """Padding that is not 0 would be attended to and counted."""
    content = json.loads(Tokenizer.train(["a b c"], kind="words", vocab_size=20).to_json())
    vocabulary = content["model"]["vocab"]
    vocabulary["<pad>"], vocabulary["<s>"] = 1, 0
    for token in content["added_tokens"]:
        token["id"] = vocabulary[token["content"]]
    (tmp_path / "other.json").write_text(json.dumps(content))
    with pytest.raises(ModelError, match=r"other.json .* added token 0's id is 1; 0 was expected"):
        train(small_run(tmp_path, "tokenizer.source=other.json"), tmp_path / "out")


def test_another_tokenizer_does_not_go_unnoticed(tmp_path: Path) -> None:
    for name, text in (("a", "one two"), ("b", "three four")):
        Tokenizer.train([text], vocab_size=400).save(tmp_path / f"{name}.json")
    train(small_run(tmp_path, "tokenizer.source=a.json", "training.steps=2"), tmp_path / "out")
    with pytest.raises(ConfigError, match="made with another tokenizer"):
        train(small_run(tmp_path, "tokenizer.source=b.json"), tmp_path / "out")


def test_an_epoch_without_pairs_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="epoch 0 has no pairs: the weights"):
        train(small_run(tmp_path, "data.train.0.weight=0.0001"), tmp_path / "out")


def test_what_a_killed_process_was_writing_is_removed(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    train(run, tmp_path / "out")
    left = tmp_path / "out" / "checkpoints" / ".step-0000004.writing-abc"
    left.mkdir()
    train(run, tmp_path / "out")
    assert not left.exists()


def test_paths_in_a_run_do_not_depend_on_where_it_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.toml").write_text('[data]\ntrain=[{kind="tsv", path="a.tsv"}]\n[training]\nsteps=1')
    monkeypatch.chdir(tmp_path)
    assert Run.load(Path("run.toml")).data.train[0].files() == [tmp_path / "a.tsv"]


def test_vocabularies_apart_and_tags(tmp_path: Path) -> None:
    """Two corpora that are told apart by what stands before their sources."""
    train_data = 'data.train=[{kind="dates", count=150, tag="<2iso>"}, {kind="dates", count=150, seed=1, tag="<2x>"}]'
    valid = 'data.valid=[{kind="dates", part="valid", count=20, tag="<2iso>"}]'
    changes = (train_data, valid, "tokenizer.shared=false", "validation.metric=bleu")
    out = train(small_run(tmp_path, *changes), tmp_path / "out")
    source = Tokenizer.load(out / "source-tokenizer.json")
    assert [source.number(tag) for tag in ("<2iso>", "<2x>")] == [4, 5]
    model = Transformer.load(out)
    assert model.config.source_size == source.vocab_size != model.config.vocab_size
    train(small_run(tmp_path, *changes), out)  # nothing is left to do, and nothing breaks


def test_a_line_of_many_megabytes_is_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one two\n" + b"long " * 2_000_000 + b"\nthree\n")
    (tmp_path / "b").write_text("eins zwei\nlang\ndrei\n")
    notes = Notes()
    corpus = 'data.train=[{kind="parallel", source="a", target="b"}]'
    run = small_run(tmp_path, corpus, corpus.replace("train", "valid"), "training.steps=2", "validation.metric=bleu")
    train(run, tmp_path / "out", callback=notes)
    assert "training: 2 pairs; 1 with a line of more than 1,000,000 characters left out" in notes.sentences


def test_a_run_may_start_from_a_trained_model(tmp_path: Path) -> None:
    first = train(small_run(tmp_path), tmp_path / "first")
    base = SMALL.replace('preset = "tiny"', "")
    shape = ("d_model", "d_ff", "num_heads", "encoder_layers", "decoder_layers")
    fewer = "\n".join(line for line in base.splitlines() if not line.startswith((*shape, "vocab_size")))
    changes = ['training.start_from="first"', "training.steps=1", "schedule.peak=1e-9", "schedule.warmup=0"]
    run = Run.from_toml(fewer, changes=changes, base=tmp_path)
    notes = Notes()
    second = train(run, tmp_path / "second", callback=notes)
    assert "starting from the weights of" in " ".join(notes.sentences)
    assert (second / TOKENIZER).read_bytes() == (first / TOKENIZER).read_bytes()
    before, after = load_file(first / "model.safetensors"), load_file(second / "model.safetensors")
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)
    other = Run.from_toml(fewer, changes=[*changes, "model.d_ff=64"], base=tmp_path)
    with pytest.raises(ModelError, match="has shape"):
        train(other, tmp_path / "third")
    with pytest.raises(ConfigError, match="leave source and preset out"):
        small_run(tmp_path, 'training.start_from="first"')


def test_a_run_that_ends_within_its_warmup_says_so(tmp_path: Path) -> None:
    notes = Notes()
    train(small_run(tmp_path, "schedule.warmup=400", "training.steps=2"), tmp_path / "out", callback=notes)
    assert [text for text in notes.sentences if "ends within its warmup: it has 2 steps" in text]


def test_a_layer_without_the_positions_of_its_configuration_is_reported(tmp_path: Path) -> None:
    class Mine(MultiHeadAttention):
        pass

    def build(config: TransformerConfig, *, keeps: bool = False) -> Transformer:
        model = Transformer(config)
        layer: Any = model.get_submodule("decoder.layers.0")
        given = layer.self_attention
        layer.self_attention = Mine.like(given) if keeps else Mine(config.d_model, config.num_heads)
        return model

    run = small_run(tmp_path, "training.steps=1", 'model.positions="rope"', "model.num_kv_heads=1", "data.valid=[]")
    notes = Notes()
    train(run, tmp_path / "lost", callback=notes, build=build)
    assert any("is a Mine without its configuration's positions" in line for line in notes.sentences)
    notes = Notes()
    directory = train(run, tmp_path / "kept", callback=notes, build=partial(build, keeps=True))
    assert not any("is a Mine without" in line for line in notes.sentences)
    layer: Any = Transformer.load(directory, build=partial(build, keeps=True)).get_submodule("decoder.layers.0")
    assert layer.self_attention.num_kv_heads == 1
    assert layer.self_attention.variations() == ["positions"]


def test_validation_names_the_decoder_that_it_decodes_with(tmp_path: Path) -> None:
    notes = Notes()
    changes = ("training.steps=2", "validation.metric=exact", "model.dropout=0.3")
    train(small_run(tmp_path, *changes), tmp_path / "out", callback=notes)
    assert "validation decodes with the packed float32 decoder" in notes.sentences
