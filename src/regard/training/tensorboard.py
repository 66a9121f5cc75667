"""The numbers of a run for TensorBoard, beside `metrics.jsonl`."""

from functools import cached_property
from pathlib import Path
from typing import Any

from regard.errors import InputError
from regard.training.callbacks import Callback, StepReport
from regard.training.validation import ValidationResult


class TensorBoard(Callback):
    """A callback that writes event files into a directory."""

    def __init__(self, directory: Path) -> None:
        try:
            import torch.utils.tensorboard.writer  # noqa: F401
        except ImportError:
            raise InputError("--tensorboard needs a package that is not installed: pip install tensorboard") from None
        self._directory = directory

    @cached_property
    def _writer(self) -> Any:
        """Its file appears with the first numbers: a run that fails to start leaves none."""
        from torch.utils.tensorboard.writer import SummaryWriter

        return SummaryWriter(str(self._directory))

    def on_step(self, report: StepReport, total: int) -> None:
        """Write the numbers of some steps."""
        for name in ("loss", "learning_rate", "gradient_norm", "tokens_per_second"):
            self._writer.add_scalar(f"training/{name}", getattr(report, name), report.step)

    def on_validation(self, step: int, result: ValidationResult, best: bool) -> None:
        """Write what validation found."""
        self._writer.add_scalar("validation/loss", result.loss, step)
        if result.score is not None:
            self._writer.add_scalar("validation/score", result.score.value, step)
        self._writer.flush()
