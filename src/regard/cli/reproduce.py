"""`regard reproduce`: a published result, trained and scored again."""

from pathlib import Path
from typing import Annotated

import typer


def reproduce(
    experiment: Annotated[str, typer.Argument(help="What to reproduce: multi30k or tatoeba.")],
    source: Annotated[
        Path | None, typer.Option("--from", help="The directory with the corpus; it is downloaded unless given.")
    ] = None,
    preset: Annotated[str, typer.Option(help="regard, our own; or published, or baseline.")] = "regard",
    seeds: Annotated[int, typer.Option(min=1, help="How many runs, with seeds 1, 2, …")] = 1,
    out: Annotated[Path, typer.Option(help="Where the runs go; stopped runs there are resumed.")] = Path("runs"),
    results: Annotated[Path | None, typer.Option(help="A page to write the outcome to, in Markdown.")] = None,
) -> None:
    """Train a published model again, score it on its test sets, and compare the scores with those published."""
    from regard.memory import keep_memory

    keep_memory()
    from regard.cli.display import display
    from regard.files import replaced_file
    from regard.training.reproduction import report
    from regard.training.reproduction import reproduce as run_one

    found = []
    for seed in range(1, seeds + 1):
        with display() as callback:
            found.append(run_one(experiment, preset, seed, data=source, out=out / experiment, callback=callback))
    command = f"regard reproduce {experiment} --preset {preset} --seeds {seeds} --from DIR"
    page = report(experiment, found, command)
    if results is not None:
        with replaced_file(results) as fresh:
            fresh.write_text(page, encoding="utf-8")
    typer.echo(page)
