"""The model that a run ends with is the better one of its average and its last weights, and its card says how good."""

import re
from pathlib import Path

import pytest
from safetensors.torch import load_file

from regard import train
from regard.training.averaging import write_average
from regard.training.callbacks import METRICS, read_metrics
from regard.training.checkpoints import step_directories
from regard.training.evaluation import evaluate_run
from tests.unit.training.runs import Notes, small_run

_EARLY = ("validation.every=4",)  # the loss falls with every step: the last weights are the best
_NOISY = ("validation.every=6", "schedule.peak=0.3", "schedule.kind=constant", "training.steps=30")


def card_loss(out: Path) -> float:
    found = re.search(r"a loss of (\d+\.\d{4}) per token", (out / "README.md").read_text())
    assert found is not None
    return float(found[1])


@pytest.mark.parametrize(("changes", "last_is_better"), [(_EARLY, True), (_NOISY, False)])
def test_the_better_of_the_mean_and_the_last_weights_is_saved(
    tmp_path: Path, changes: tuple[str, ...], last_is_better: bool
) -> None:
    notes = Notes()
    run = small_run(tmp_path, "averaging.kind=last", "averaging.count=4", "optimizer.clip=100.0", *changes)
    out = train(run, tmp_path / "out", callback=notes)
    snapshots = step_directories(out / "snapshots")
    write_average(snapshots[-4:], tmp_path / "mean", tokenizers_of=out)
    mean, last = (evaluate_run(path, out).loss for path in (tmp_path / "mean", snapshots[-1]))
    assert evaluate_run(out, out).loss == min(mean, last)
    assert (last < mean) == last_is_better
    origin = "the last ones, of step" if last_is_better else "the mean of 4 snapshots, of steps"
    assert f"Its weights are {origin}" in (out / "README.md").read_text()
    assert any(f"the model's weights are {origin}" in sentence for sentence in notes.sentences)


@pytest.mark.parametrize("changes", [(), ("averaging.kind=running",), ("averaging.kind=last", "averaging.count=3")])
@pytest.mark.parametrize("metric", ["loss", "chrf"])
def test_the_card_has_the_figures_of_the_saved_model(tmp_path: Path, changes: tuple[str, ...], metric: str) -> None:
    run = small_run(tmp_path, f"validation.metric={metric}", *_NOISY, *changes)
    out = train(run, tmp_path / "out")
    found = evaluate_run(out, out)
    assert card_loss(out) == pytest.approx(found.loss, abs=1e-4)
    if found.score is not None:
        assert f"chrf {found.score.value:.2f} (`{found.score.signature}`)" in (out / "README.md").read_text()
    final = [line for line in read_metrics(out / METRICS) if line["kind"] == "final"]
    assert [line["step"] for line in final] == [30]
    assert final[0]["loss"] == pytest.approx(found.loss, rel=1e-12)


def test_the_same_command_once_more_ends_with_the_same_model_and_card(tmp_path: Path) -> None:
    run = small_run(tmp_path, "averaging.kind=last", "averaging.count=3")
    out = train(run, tmp_path / "out")
    before = {name: (out / name).read_bytes() for name in ("model.safetensors", "README.md", METRICS)}
    train(run, out)
    assert {name: (out / name).read_bytes() for name in before} == before


def test_a_run_that_goes_on_for_longer_has_one_final_model(tmp_path: Path) -> None:
    changes = ("averaging.kind=last", "averaging.count=3", "validation.every=4")
    train(small_run(tmp_path, *changes, "training.steps=8"), tmp_path / "longer")
    longer = train(small_run(tmp_path, *changes), tmp_path / "longer")
    whole = train(small_run(tmp_path, *changes), tmp_path / "whole")
    one, other = (load_file(path / "model.safetensors") for path in (longer, whole))
    assert all(one[name].equal(other[name]) for name in one)
    assert [line["step"] for line in read_metrics(longer / METRICS) if line["kind"] == "final"] == [14]
    assert card_loss(longer) == card_loss(whole)


def test_without_validation_data_the_mean_is_saved_and_the_card_gives_no_figures(tmp_path: Path) -> None:
    out = train(small_run(tmp_path, "averaging.kind=last", "averaging.count=2", "data.valid=[]"), tmp_path / "out")
    card = (out / "README.md").read_text()
    assert "Its weights are the mean of 2 snapshots, of steps 12, 14." in card
    assert "per token" not in card
