"""The curves of a run as a picture."""

from pathlib import Path
from typing import Any

from regard.errors import ModelError
from regard.files import replaced_file
from regard.pictures import new_figure, picture_path
from regard.training.callbacks import METRICS, is_validation, read_metrics


def draw_curves(directory: Path, path: Path) -> None:
    """Draw what `metrics.jsonl` tells: loss and validation, learning rate, speed."""
    path = picture_path(path)
    if not (directory / METRICS).exists():
        raise ModelError(f"{directory / METRICS} is missing; {directory} is not the directory of a run that has begun")
    lines = read_metrics(directory / METRICS)
    steps = [line for line in lines if line["kind"] == "steps"]
    validations = [line for line in lines if is_validation(line)]
    if not steps:
        raise ModelError(f"{directory / METRICS} tells of no steps yet")
    figure = new_figure(8, 7.5)
    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=(3, 1.2, 1))
    _losses(top, steps, validations)
    numbers = [line["step"] for line in steps]
    middle.plot(numbers, [line["learning_rate"] for line in steps], color="#7a5195")
    middle.set_ylabel("learning rate")
    bottom.plot(numbers, [line["tokens_per_second"] for line in steps], color="#8a8a8a", linewidth=0.8)
    bottom.set_ylabel("tokens/s")
    bottom.set_ylim(bottom=0)
    bottom.set_xlabel("step")
    for axes in (top, middle, bottom):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    top.set_title(directory.resolve().name, loc="left", fontweight="bold")
    with replaced_file(path) as fresh:
        figure.savefig(fresh, dpi=120, format=path.suffix[1:])


def _losses(axes: Any, steps: list[dict[str, Any]], validations: list[dict[str, Any]]) -> None:
    axes.plot(
        [line["step"] for line in steps],
        [line["loss"] for line in steps],
        color="#9ecae1",
        linewidth=1.2,
        label="training loss, labels smoothed",
    )
    axes.set_ylabel("loss per target token")
    if validations:
        numbers = [line["step"] for line in validations]
        axes.plot(numbers, [line["loss"] for line in validations], color="#08519c", label="validation loss")
    handles, labels = axes.get_legend_handles_labels()
    if validations and "score" in validations[0]:
        scores = axes.twinx()
        scores.plot(
            [line["step"] for line in validations],
            [line["score"] for line in validations],
            color="#d95f0e",
            marker=".",
            label="validation score",
        )
        scores.set_ylabel("score")
        scores.spines["top"].set_visible(False)
        more_handles, more_labels = scores.get_legend_handles_labels()
        handles, labels = handles + more_handles, labels + more_labels
    axes.legend(handles, labels, frameon=False, loc="center right")
