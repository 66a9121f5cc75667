"""Pages of results: a date, the command, the machine, and tables."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import torch

from regard.training.environment import cpu_name

RESULTS = Path(__file__).parent / "results"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    return [
        "| " + " | ".join(head) + " |",
        "| --- " + "| ---: " * (len(head) - 1) + "|",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def write_page(path: Path | None, name: str, title: str, command: str, lines: Sequence[str]) -> Path:
    """Write a page with its date, its command and the machine; a dated one in `results` unless a path is given."""
    today = date.today().isoformat()
    path = path or RESULTS / f"{name}-{today}.md"
    threads = torch.get_num_threads()
    machine = f"{cpu_name()}, {threads} thread{'s' * (threads > 1)}, torch {torch.__version__}"
    content = [f"# {title}, {today}", "", f"`{command}` made this file. {machine}.", "", *lines]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(content) + "\n", encoding="utf-8")
    print(path, flush=True)
    return path
