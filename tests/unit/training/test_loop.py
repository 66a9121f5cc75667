"""How a run ends: with a model, or with a word on why there is none."""

from pathlib import Path

import pytest
from safetensors.torch import load_file

from regard import train
from regard.errors import ConfigError, DivergedError, InputError
from regard.training.averaging import chosen_snapshots, judged_values
from regard.training.checkpoints import step_directories
from regard.training.evaluation import evaluate_run
from regard.training.reports import METRICS
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
    train(small_run(tmp_path, *_MUCH, "training.steps=3"), tmp_path / "out", listener=notes)
    assert any("the last 2 steps were left out" in line for line in notes.sentences)


def test_which_snapshots_are_best_is_known_without_the_metrics(tmp_path: Path) -> None:
    changes = ("averaging.kind=best", "averaging.count=2", "validation.every=3")
    whole = train(small_run(tmp_path, *changes), tmp_path / "whole")
    cut = train(small_run(tmp_path, *changes, "training.steps=8"), tmp_path / "cut")
    (cut / METRICS).unlink()
    train(small_run(tmp_path, *changes), cut)
    one, other = (load_file(path / "model.safetensors") for path in (whole, cut))
    assert all(one[name].equal(other[name]) for name in one)
    assert chosen_snapshots(whole, 2, judged_values(whole)) == step_directories(whole / "snapshots")[-2:]


def test_what_is_no_report_is_passed_over(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    out = train(run, tmp_path / "out")
    before = judged_values(out)
    with (out / METRICS).open("ab") as file:
        file.write(b'\xff\n12\n{}\n{"kind": "validation"}\n{"kind": ')
    assert judged_values(out) == before
    train(run, out)


def test_a_file_with_the_name_of_a_checkpoint_is_none(tmp_path: Path) -> None:
    changes = ("checkpoints.keep=1", "training.steps=8")
    out = train(small_run(tmp_path, *changes), tmp_path / "out")
    for name in ("step-9999999", "step-²"):
        (out / "checkpoints" / name).write_text("")
    train(small_run(tmp_path, "checkpoints.keep=1"), out)
    assert [path.name for path in step_directories(out / "checkpoints")] == ["step-0000014"]


def test_lines_longer_than_learned_positions_are_left_out_and_counted(tmp_path: Path) -> None:
    lines = ["one two three"] * 30 + ["one " * 50]
    for name in ("a", "b"):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    corpus = '[{kind = "parallel", source = "a", target = "b"}]'
    notes = Notes()
    changes = ("model.positions=learned", "model.max_positions=40", "validation.metric=exact", "training.steps=2")
    train(
        small_run(tmp_path, f"data.train={corpus}", f"data.valid={corpus}", *changes), tmp_path / "out", listener=notes
    )
    said = [line for line in notes.sentences if "longer than model.max_positions 40 left out" in line]
    assert [line.partition(":")[0] for line in said] == ["training", "validation"]
    assert all("30 pairs; 1 longer" in line for line in said)
    assert evaluate_run(tmp_path / "out", tmp_path / "out").loss > 0.0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("schedule.peak=true", "peak is True"),
        ("schedule.peak='0.01'", "peak is '0.01'"),
        ("optimizer.eps=true", "eps is True"),
        ("data.train.0.weight=true", "weight is True"),
        ("data.train.0.weight=1e9", "weight is 1000000000.0"),
        ("training.r_drop=1e300", "r_drop is 1e\\+300"),
        ("training.threads=2147483647", "threads is 2147483647"),
        ("tokenizer.vocab_size=2147483647", "vocab_size is 2147483647"),
        ("validation.length_penalty=1000", "length_penalty is 1000"),
        ("training.seed=" + 5000 * "9", r"\(5,002 characters\)"),
        ("data.train.²=1", "is not one of the 1 entries"),
    ],
)
def test_numbers_that_no_run_has(tmp_path: Path, change: str, says: str) -> None:
    with pytest.raises((ConfigError, InputError), match=says) as caught:
        small_run(tmp_path, change)
    assert len(str(caught.value)) < 2000
