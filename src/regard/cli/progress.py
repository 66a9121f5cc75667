"""Progress on standard error: a bar on a terminal, occasional lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_QUIET = 3.0  # seconds before anything is shown: short work needs no bar
_BETWEEN = 30.0  # seconds between two lines


class ProgressCounter:
    """What is done of a work."""

    def __init__(self, total: int | None, done: int, bar: "Progress | None") -> None:
        self.total, self.done = total, done
        self._began = self._said = time.monotonic()
        self._first = done
        self._bar = bar
        self._task: TaskID | None = None

    def by(self, count: int) -> None:
        """Count so many more lines as done."""
        self.done += count
        now = time.monotonic()
        if self._bar is not None and now - self._began > _QUIET:
            if self._task is None:
                self._bar.start()
                self._task = self._bar.add_task("lines", total=self.total)
            speed = (self.done - self._first) / (now - self._began)
            self._bar.update(self._task, completed=self.done, description=f"{speed:,.0f} lines/s")
        elif self._bar is None and now - self._said > _BETWEEN:
            self._said = now
            of = "" if self.total is None else f" of {self.total:,}"
            speed = (self.done - self._first) / (now - self._began)
            print(f"{self.done:,}{of} lines, {speed:,.0f} lines/s", file=sys.stderr, flush=True)


@contextmanager
def progress(total: int | None, *, done: int = 0) -> Iterator[ProgressCounter]:
    """Follow a work of so many lines, as far as that is known."""
    # Where the output goes to the same terminal, a bar would overwrite it.
    if not sys.stderr.isatty() or (total is None and sys.stdout.isatty()):
        yield ProgressCounter(total, done, None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False)
    columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    try:
        yield ProgressCounter(total, done, bar)
    finally:
        bar.stop()
