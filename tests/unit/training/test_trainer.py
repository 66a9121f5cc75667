"""How a run ends: with a model, or with a word on why there is none."""

import itertools
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import Tensor

from regard import Transformer, train
from regard.errors import DivergedError
from regard.training.averaging import chosen_snapshots, validation_values
from regard.training.callbacks import METRICS
from regard.training.checkpoints import step_directories
from regard.training.examples import Batch
from regard.training.losses import cross_entropy
from regard.training.train_step import StepResult
from regard.training.trainer import Trainer
from regard.training.validation import ValidationResult
from tests.unit.training.runs import Notes, small_run

_MUCH = ("schedule.peak=1e30", "schedule.warmup=0", "optimizer.clip=1e30")


def test_a_run_that_has_diverged_does_not_end_well_when_it_is_started_again(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(DivergedError, match="in 10 steps in a row, up to step 11"):
            train(small_run(tmp_path, *_MUCH, "training.steps=11"), tmp_path / "out")


def test_weights_that_are_not_finite_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match=r"after step 3 .* is not finite; no model comes of this run"):
        train(small_run(tmp_path, *_MUCH, "schedule.peak=1e39", "training.steps=3"), tmp_path / "out")
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_last_steps_that_were_left_out_are_told(tmp_path: Path) -> None:
    notes, loss, calls = Notes(), cross_entropy(0.1), itertools.count()
    train(
        small_run(tmp_path, "training.steps=3"),
        tmp_path / "out",
        callback=notes,
        loss=lambda model, batch: loss(model, batch) * (float("nan") if next(calls) else 1.0),
    )
    assert any("were not finite: 2 steps" in line for line in notes.sentences)


@pytest.fixture
def far_device(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make the results of steps count as those of another device; return how many were read each time."""
    reads: list[int] = []
    read = Trainer._read

    def counted(trainer: Trainer) -> None:
        reads.append(len(trainer._unread))
        read(trainer)

    monkeypatch.setattr(StepResult, "is_on_cpu", False)
    monkeypatch.setattr(Trainer, "_read", counted)
    return reads


_AVERAGED = ("averaging.kind=running", "training.report_every=7", "optimizer.clip=0.5", "training.accumulate=2")


def test_losses_of_another_device_are_read_when_they_are_reported(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    near, far = Notes(), Notes()
    run = small_run(tmp_path, *_AVERAGED, "checkpoints.every=100", "validation.every=100")
    one = train(run, tmp_path / "near", callback=near)
    reads = request.getfixturevalue("far_device")
    other = train(run, tmp_path / "far", callback=far)
    assert [count for count in reads if count] == [7, 7]
    for name in ("loss", "gradient_norm", "skipped", "step"):
        assert [getattr(report, name) for report in near.reports] == [getattr(report, name) for report in far.reports]
    ours, theirs = (load_file(path / "model.safetensors") for path in (one, other))
    assert all(ours[name].equal(theirs[name]) for name in ours)


def test_a_run_that_diverges_on_another_device_ends_where_it_is_reported(tmp_path: Path, far_device: list[int]) -> None:
    changes = (*_MUCH, "training.steps=40", "training.report_every=13", "checkpoints.every=100", "validation.every=100")
    with pytest.raises(DivergedError, match="in 10 steps in a row, up to step 13"):
        train(small_run(tmp_path, *changes), tmp_path / "out")


def test_half_precision_goes_on_after_a_gradient_that_overflows(tmp_path: Path) -> None:
    def sometimes(model: Transformer, batch: Batch) -> Tensor:
        value = cross_entropy()(model, batch)
        return value * float("inf") if next(calls) in (3, 5) else value

    calls, notes = iter(range(1, 100)), Notes()
    train(small_run(tmp_path, "training.precision=float16"), tmp_path / "out", loss=sometimes, callback=notes)
    assert sum(report.skipped for report in notes.reports) >= 2


def test_which_snapshots_are_best_is_known_without_the_metrics(tmp_path: Path) -> None:
    changes = ("averaging.kind=best", "averaging.count=2", "validation.every=3")
    whole = train(small_run(tmp_path, *changes), tmp_path / "whole")
    cut = train(small_run(tmp_path, *changes, "training.steps=8"), tmp_path / "cut")
    (cut / METRICS).unlink()
    train(small_run(tmp_path, *changes), cut)
    one, other = (load_file(path / "model.safetensors") for path in (whole, cut))
    assert all(one[name].equal(other[name]) for name in one)
    assert chosen_snapshots(whole, 2, validation_values(whole)) == step_directories(whole / "snapshots")[-2:]


def test_what_is_no_report_is_passed_over(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    out = train(run, tmp_path / "out")
    before = validation_values(out)
    with (out / METRICS).open("ab") as file:
        file.write(b'\xff\n12\n{}\n{"kind": "validation"}\n{"kind": ')
    assert validation_values(out) == before
    train(run, out)


def test_a_file_with_the_name_of_a_checkpoint_is_none(tmp_path: Path) -> None:
    changes = ("checkpoints.keep=1", "training.steps=8")
    out = train(small_run(tmp_path, *changes), tmp_path / "out")
    for name in ("step-9999999", "step-²"):
        (out / "checkpoints" / name).write_text("")
    train(small_run(tmp_path, "checkpoints.keep=1"), out)
    assert [path.name for path in step_directories(out / "checkpoints")] == ["step-0000014"]


def test_a_short_run_whose_losses_were_never_finite_has_no_model(tmp_path: Path) -> None:
    loss = cross_entropy(0.1)
    with pytest.raises(DivergedError, match="none of 3 steps had a finite loss and gradient"):
        train(small_run(tmp_path, "training.steps=3"), tmp_path / "out", loss=lambda m, b: loss(m, b) * float("nan"))
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_a_model_whose_validation_loss_is_not_finite_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "regard.training.validation.Validator.validate",
        lambda validator, model: ValidationResult(float("nan"), None),
    )
    with pytest.raises(DivergedError, match="after step 3 the validation loss is nan"):
        train(small_run(tmp_path, "training.steps=3", "validation.metric=loss"), tmp_path / "out")
    assert not (tmp_path / "out" / "model.safetensors").exists()
