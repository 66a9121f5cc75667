"""`regard doctor`: what this machine can do, measured."""

from typing import Annotated

import typer

_SUBJECT = 13  # columns


def doctor(
    seconds: Annotated[float, typer.Option(min=0.1, max=600.0, help="How long to measure, at most.")] = 20.0,
) -> None:
    """Print what training and translating use on this machine, what each kernel gains, measured, and what to change."""
    from regard.memory import keep_memory

    kept = keep_memory()
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from regard.training.diagnostics import diagnose

    console = Console(highlight=False)
    for finding in diagnose(memory_kept=kept, seconds=seconds):
        table = Table.grid()  # one for each finding, shown as soon as it is there
        table.add_column(width=_SUBJECT, style="bold")
        table.add_column()
        table.add_row(finding.subject, Text(finding.text))
        if finding.advice:
            table.add_row("", Text(f"→ {finding.advice}", style="green"))
        console.print(table)
