"""Draw the pictures of the documentation: `make docs`."""

import io
import re
from pathlib import Path

from rich.console import Console

from regard.cli.explain import show
from regard.inspection import explain_sentence


def main() -> None:
    """Record what `regard explain` prints on a terminal, in colour."""
    console = Console(
        file=io.StringIO(), record=True, width=96, force_terminal=True, color_system="truecolor", highlight=False
    )
    show(explain_sentence("the cat saw the dog", causal=True), console)
    svg = console.export_svg(title='regard explain "the cat saw the dog" --causal')
    # Without the fonts that would be fetched from elsewhere: every reader has a monospaced one.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    (Path(__file__).parent / "explain.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
