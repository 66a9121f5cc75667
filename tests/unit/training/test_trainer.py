"""How a run ends: with a model, or with a word on why there is none."""

from pathlib import Path

import pytest
from safetensors.torch import load_file

from regard import train
from regard.errors import DivergedError
from regard.training.averaging import chosen_snapshots, validation_values
from regard.training.callbacks import METRICS
from regard.training.checkpoints import step_directories
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
    notes = Notes()
    train(small_run(tmp_path, *_MUCH, "training.steps=3"), tmp_path / "out", callback=notes)
    assert any("were not finite: 2 steps" in line for line in notes.sentences)


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
