"""Draw the pictures of the documentation: `make docs`."""

import io
import re
import tempfile
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from rich.console import Console

from regard import load, recipes, train
from regard.cli.explain import show
from regard.inspection import draw_attention, draw_pattern, explain_sentence
from regard.layers.patterns import BigBird, BlockSparse, Longformer, SlidingWindow
from regard.training.curves import draw_curves

HERE = Path(__file__).parent
BLUE, GREEN, GRAY = ("#e8f0fb", "#2b5c9e"), ("#e6f4ea", "#2f7d4f"), ("#f4f4f2", "#6b6b66")


def main() -> None:
    """Draw all of them; one is of a run, which takes a minute or two."""
    draw_packages()
    draw_what_runs()
    draw_patterns()
    draw_explain()
    draw_translation()
    draw_training()


class Diagram:
    """Boxes and arrows on a grid of inches; y grows downwards."""

    def __init__(self, width: float, height: float) -> None:
        self.figure = Figure(figsize=(width, height))
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, width), ylim=(height, 0))
        self.axes.axis("off")

    def box(
        self, x: float, y: float, width: float, height: float, name: str, text: str, color: tuple[str, str]
    ) -> None:
        """Draw a box with a name in bold and a few words below it."""
        fill, line = color
        style: dict[str, Any] = dict(
            facecolor=fill, edgecolor=line, linewidth=1.2, boxstyle="round,pad=0,rounding_size=0.08"
        )
        self.axes.add_patch(FancyBboxPatch((x, y), width, height, **style))
        words: dict[str, Any] = dict(ha="center", va="center", color="#222")
        middle, lines = y + height / 2, text.count("\n") + 1 if text else 0
        self.axes.text(x + width / 2, middle - 0.11 * lines, name, weight="bold", fontsize=10, **words)
        if text:
            self.axes.text(x + width / 2, middle + 0.13, text, fontsize=8, linespacing=1.25, **words)

    def band(self, x: float, y: float, width: float, height: float, title: str, color: tuple[str, str]) -> None:
        """Draw a dashed frame around boxes, with a title in its upper left corner."""
        style: dict[str, Any] = dict(fill=False, edgecolor=color[1], linewidth=1.2, linestyle=(0, (4, 3)))
        self.axes.add_patch(Rectangle((x, y), width, height, **style))
        self.axes.text(x + 0.1, y + 0.17, title, color=color[1], fontsize=8.5, style="italic", va="center")

    def arrow(self, start: tuple[float, float], end: tuple[float, float], text: str = "", dx: float = 0.08) -> None:
        """Draw an arrow, with words beside its middle."""
        style = dict(arrowstyle="-|>", color="#444", linewidth=1.1, shrinkA=0, shrinkB=0)
        self.axes.annotate("", end, start, arrowprops=style)
        middle = (start[0] + end[0]) / 2 + dx, (start[1] + end[1]) / 2
        self.axes.text(*middle, text, fontsize=8, color="#444", va="center", ha="left" if dx >= 0 else "right")

    def save(self, name: str) -> None:
        """Write the picture beside this file."""
        self.figure.savefig(HERE / name, dpi=150)


def draw_packages() -> None:
    """Draw the packages: each imports only what is below it."""
    diagram = Diagram(9.2, 6.7)
    diagram.box(0.2, 0.15, 8.8, 0.5, "cli", "one file a verb", GRAY)
    for x, name, text in (
        (0.2, "training", "recipe, trainer, checkpoints"),
        (3.17, "inspection", "attention weights, as text and pictures"),
        (6.14, "export", "CTranslate2, ONNX"),
    ):
        diagram.box(x, 0.8, 2.86, 0.55, name, text, GRAY)
    diagram.box(
        0.2, 1.5, 8.8, 0.55, "pipelines", "regard.load: a model directory put to work by the pipeline of its task", GRAY
    )
    diagram.box(0.2, 2.2, 8.8, 0.55, "tasks", "translation, summarization, question answering, …; metrics", GRAY)
    diagram.box(
        0.2, 2.9, 8.8, 0.55, "inference", "the base of pipelines, the generic decoder, the choice of backend", GRAY
    )
    diagram.band(0.2, 3.6, 5.2, 1.22, "speed by replacement", GREEN)
    diagram.box(0.35, 3.95, 3.1, 0.75, "acceleration", "replacements of known modules,\npacked decoder", GREEN)
    diagram.box(3.6, 3.95, 1.65, 0.75, "kernels", "C++ (optional)", GREEN)
    diagram.box(5.55, 3.6, 3.45, 0.55, "decoding", "search over a step function", GRAY)
    diagram.box(5.55, 4.27, 3.45, 0.55, "data", "tokenizers, corpora, batches", GRAY)
    diagram.band(0.2, 4.95, 8.8, 1.6, "plain PyTorch: the model you read", BLUE)
    diagram.box(0.35, 5.25, 2.75, 1.15, "model", "config → modules\nencode, decode, forward\nsave, load", BLUE)
    diagram.box(3.22, 5.25, 2.75, 1.15, "layers", "nn.Modules:\nattention, feed-forward, …", BLUE)
    diagram.box(6.1, 5.25, 2.75, 1.15, "ops", "the equations:\nfunctions of tensors", BLUE)
    diagram.save("packages.png")


def draw_what_runs() -> None:
    """Draw what decides which code computes a module, in training and in decoding."""
    diagram = Diagram(9.2, 4.7)
    diagram.box(2.85, 0.15, 3.5, 0.65, "your model", "Transformer(config), or build(config)", BLUE)
    diagram.arrow((3.6, 0.8), (2.35, 1.35), "training", dx=-0.3)
    diagram.arrow((5.6, 0.8), (6.85, 1.35), "decoding", dx=0.3)
    diagram.box(0.5, 1.35, 3.7, 0.75, "regard.accelerate(model)", "is reference_type(module) known?", GRAY)
    diagram.box(5.0, 1.35, 3.7, 0.75, "choose_backend(model)", "is every module of the model known?", GRAY)
    for x, name, text, color in (
        (0.2, "replacement", "same parameters,\nsame function, by kernels", GREEN),
        (2.45, "the module itself", "its own forward,\nin plain PyTorch", BLUE),
        (4.7, "packed decoder", "int8 or float32,\nall layers in one call", GREEN),
        (6.95, "generic decoder", "calls the model's own\ndecode with its cache", BLUE),
    ):
        diagram.box(x, 2.85, 2.05, 0.95, name, text, color)
    for x, target in ((1.5, 1.25), (6.0, 5.75)):
        diagram.arrow((x, 2.1), (target, 2.85), "yes", dx=-0.12)
    for x, target in ((3.2, 3.45), (7.7, 7.95)):
        diagram.arrow((x, 2.1), (target, 2.85), "no", dx=0.12)
    diagram.axes.text(
        4.6,
        4.25,
        "Unknown: a subclass, a hook, a parametrization, a forward set on the instance.\n"
        "What runs is reported: by the Report that accelerate returns, and by pipeline.backend.",
        ha="center",
        va="center",
        fontsize=8.5,
        linespacing=1.4,
        color="#222",
    )
    diagram.save("what-runs.png")


def draw_patterns() -> None:
    """The sparse attention patterns, small."""
    strided = [[int(i == j or j % 4 == 3) for j in range(16)] for i in range(16)]
    patterns = {
        "window": SlidingWindow(6),
        "sinks": SlidingWindow(6, sinks=3),
        "longformer": Longformer(6, global_tokens=3),
        "bigbird": BigBird(window_blocks=1, global_blocks=1, random_blocks=2, block=4),
        "blocks": BlockSparse(strided, block=4),
    }
    for name, pattern in patterns.items():
        draw_pattern(pattern, HERE / f"pattern-{name}.png")


def draw_translation() -> None:
    """Draw the attention weights of a translation."""
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
