"""Draw the pictures of the documentation: `make docs`."""

import io
import re
import tempfile
from pathlib import Path

from rich.console import Console

from regard import load, recipes, train
from regard.cli.explain import show
from regard.inspection import draw_attention, explain_sentence
from regard.training.curves import draw_curves

HERE = Path(__file__).parent


def main() -> None:
    """Draw all of them; one is of a run, which takes a minute or two."""
    draw_explain()
    draw_looks()
    draw_training()


def draw_looks() -> None:
    """Draw what each word of a translation looked at."""
    model = load("de-en")
    source = "Das Wetter ist heute sehr schön."
    target = model.translate(source, to="en").text
    draw_attention(model.attention(source, target, to="en"), HERE / "attention.png")


def draw_training() -> None:
    """Train the recipe for dates and draw its curves."""
    with tempfile.TemporaryDirectory() as directory:
        out = train(recipes.path_of("dates"), Path(directory) / "dates")
        draw_curves(out, HERE / "curves.png")


def draw_explain() -> None:
    """Record what `regard explain` prints on a terminal, in colour."""
    console = Console(
        file=io.StringIO(), record=True, width=96, force_terminal=True, color_system="truecolor", highlight=False
    )
    show(explain_sentence("the cat saw the dog", causal=True), console)
    svg = console.export_svg(title='regard explain "the cat saw the dog" --causal')
    # Without the fonts that would be fetched from elsewhere: every reader has a monospaced one.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    (HERE / "explain.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
