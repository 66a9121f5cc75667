"""Draw the pictures of the documentation: `make docs`."""

from pathlib import Path

from rich.console import Console

from regard.cli.explain import show
from regard.inspection import explain_sentence


def main() -> None:
    """Record what `regard explain` prints on a terminal, in colour."""
    console = Console(record=True, width=96, force_terminal=True, color_system="truecolor", highlight=False)
    show(explain_sentence("the cat saw the dog", causal=True), console)
    console.save_svg(str(Path(__file__).parent / "explain.svg"), title='regard explain "the cat saw the dog" --causal')


if __name__ == "__main__":
    main()
