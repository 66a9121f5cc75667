"""`regard doctor`: what this machine can do, measured."""

import typer


def doctor() -> None:
    """Say what training would use here, and measure what each choice brings."""
    from regard.memory import keep_memory

    kept = keep_memory()
    from rich.console import Console
    from rich.table import Table

    from regard.training.checkup import checkup

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    for name, finding in checkup(memory_kept=kept):
        table.add_row(name, finding)
    Console(highlight=False).print(table)
    typer.echo("")
