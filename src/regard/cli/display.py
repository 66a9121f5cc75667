"""How training looks: live on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from regard.training.callbacks import Callback, StepReport
from regard.training.validation import ValidationResult


@contextmanager
def display() -> Iterator[Callback]:
    """Follow a run on standard error."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield PlainDisplay()
        return
    live = LiveDisplay(console)
    with live.progress:
        yield live


def duration(seconds: float) -> str:
    """Write a time for people.

    >>> duration(45), duration(184), duration(7500)
    ('45 s', '3 min 04 s', '2 h 05 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class PlainDisplay(Callback):
    """A line for each thing that happens."""

    def on_message(self, text: str) -> None:
        """Write a sentence."""
        print(text, file=sys.stderr, flush=True)

    def on_step(self, report: StepReport, total: int) -> None:
        """Write how far it is."""
        self.on_message(f"step {report.step:,}/{total:,}  {_facts(report)}  {_left(report, total)} left")

    def on_validation(self, step: int, result: ValidationResult, best: bool) -> None:
        """Write what validation found."""
        self.on_message(f"step {step:,}  validation: {result.text}{'  best so far' if best else ''}")


class LiveDisplay(Callback):
    """A bar with the numbers beside it; what was said stays above."""

    def __init__(self, console: Console) -> None:
        self.progress = Progress(
            TextColumn("step {task.completed:,.0f}/{task.total:,.0f}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[facts]}"),
            console=console,
            transient=True,
        )
        self._task = self.progress.add_task("training", total=1, facts="", visible=False)

    def on_message(self, text: str) -> None:
        """Write a sentence above the bar."""
        self.progress.console.print(text, markup=False)

    def on_step(self, report: StepReport, total: int) -> None:
        """Move the bar."""
        facts = f"{_facts(report)}  [bold]{_left(report, total)}[/bold] left"
        self.progress.update(self._task, completed=report.step, total=total, facts=facts, visible=True)

    def on_validation(self, step: int, result: ValidationResult, best: bool) -> None:
        """Write what validation found above the bar."""
        self.on_message(f"step {step:>7,}  {result.text}{'  ← best' if best else ''}")


def _facts(report: StepReport) -> str:
    skipped = f"  {report.skipped} skipped" if report.skipped else ""
    return (
        f"epoch {report.epoch:.1f}  loss {report.loss:.3f}  rate {report.learning_rate:.2g}  "
        f"{report.tokens_per_second:,.0f} tokens/s{skipped}"
    )


def _left(report: StepReport, total: int) -> str:
    return duration(report.seconds / report.step * max(0, total - report.step))
