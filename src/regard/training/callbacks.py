"""What training says while it runs: to people through a callback, to programs in `metrics.jsonl`."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.files import check_is_file, replaced_file, writing
from regard.training.validation import ValidationResult

METRICS = "metrics.jsonl"
_KINDS = ("steps", "validation", "final")


@dataclass(frozen=True)
class StepReport:
    """The last steps, up to one."""

    step: int
    epoch: float
    """How many passes over the data are done."""
    loss: float
    """Per target token, as it is trained: with smoothed labels."""
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float
    """Target tokens, without padding."""
    seconds: float
    """Since the start of the run, with the time before it was resumed."""
    skipped: int
    """How many of these steps were left out because they were not finite."""


class Callback:
    """What follows a run: `regard.train` calls it. Each method does nothing unless a subclass overrides it."""

    def on_message(self, text: str) -> None:
        """Receive a sentence about what happens: the data, the model, a checkpoint that the run resumes from."""

    def on_step(self, report: StepReport, total: int) -> None:
        """Receive a report of the last `training.report_every` steps, and how many steps the run has in all."""

    def on_validation(self, step: int, result: ValidationResult, best: bool) -> None:
        """Receive the result of a validation, and whether it is the best so far."""


class CallbackList(Callback):
    """Forwards every event to several callbacks, or to none."""

    def __init__(self, *callbacks: Callback) -> None:
        self._callbacks = callbacks

    def on_message(self, text: str) -> None:
        """Pass a sentence on."""
        for callback in self._callbacks:
            callback.on_message(text)

    def on_step(self, report: StepReport, total: int) -> None:
        """Pass steps on."""
        for callback in self._callbacks:
            callback.on_step(report, total)

    def on_validation(self, step: int, result: ValidationResult, best: bool) -> None:
        """Pass a validation on."""
        for callback in self._callbacks:
            callback.on_validation(step, result, best)


class MetricsFile:
    """`metrics.jsonl`: a line for each report, in the order of the steps."""

    def __init__(self, out: Path) -> None:
        self._path = out / METRICS

    def forget_after(self, step: int) -> None:
        """Drop the lines of later steps, and of the final model, which a resumed run will write again."""
        if self._path.exists():
            lines = [line for line in read_metrics(self._path) if line["step"] <= step and line["kind"] != "final"]
            kept = [json.dumps(line) + "\n" for line in lines]
            with replaced_file(self._path) as fresh:
                fresh.write_text("".join(kept), encoding="utf-8")

    def on_step(self, report: StepReport) -> None:
        """Write a report of steps."""
        self._write({"kind": "steps", **asdict(report)})

    def on_validation(self, step: int, result: ValidationResult) -> None:
        """Write a validation."""
        self._write({"kind": "validation", "step": step, **_numbers(result)})

    def ended(self, step: int, weights: str, result: ValidationResult) -> None:
        """Write the validation of the model that the run ends with, and what its weights are."""
        self._write({"kind": "final", "step": step, "weights": weights, **_numbers(result)})

    def _write(self, content: dict[str, Any]) -> None:
        with writing(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(content) + "\n")


def _numbers(result: ValidationResult) -> dict[str, Any]:
    if result.score is None:
        return {"loss": result.loss}
    return {"loss": result.loss, "score": result.score.value, "signature": result.score.signature}


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read what was written; a last line that was cut off by a crash, and what is no report, is passed over."""
    lines: list[dict[str, Any]] = []
    check_is_file(path)
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int) and line.get("kind") in _KINDS:
            lines.append(line)
    return lines


def is_validation(line: dict[str, Any]) -> bool:
    """Whether a line is a validation's."""
    return bool(line["kind"] == "validation")


def validation_value(line: dict[str, Any]) -> float:
    """Return the number of a validation that decides: the higher, the better."""
    return float(line["score"] if "score" in line else -line["loss"])
