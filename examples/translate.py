"""Translate a few sentences both ways with the model of the package, and draw the attention weights of one of them.

python examples/translate.py
"""

import time
from pathlib import Path

from rich.console import Console

import regard
from regard.inspection import draw_attention

SENTENCES = {
    "en": [
        "Ich habe Hunger.",
        "Wo ist der Bahnhof?",
        "Das Wetter ist heute sehr schön.",
        "Kannst du mir bitte helfen? Ich habe meinen Schlüssel verloren.",
    ],
    "de": [
        "I don't know what to say.",
        "How much does this book cost?",
        "She has been living in Boston for three years.",
        "Tom is tired. He wants to go home.",
    ],
}
PICTURE = Path("attention.png")


def main() -> None:
    """Show it."""
    console = Console(highlight=False)
    model = regard.load("de-en")
    for language, sentences in SENTENCES.items():
        began = time.perf_counter()
        made = model.translate(sentences, to=language)
        seconds = time.perf_counter() - began
        console.print(f"\n[bold]into {language}[/bold]  ({1000 * seconds:.0f} ms)")
        for source, translation in zip(sentences, made, strict=True):
            console.print(f"  {source}\n    [green]{translation.text}[/green]  [dim]{translation.score:.2f}[/dim]")
    source = SENTENCES["en"][2]
    target = model.translate(source, to="en").text
    draw_attention(model.attention(source, target, to="en"), PICTURE)
    console.print(f"\n{PICTURE}: the attention weights of “{target}”")
    console.print('\nYour turn: [bold]echo "Guten Morgen!" | .venv/bin/regard translate --to en[/bold]')


if __name__ == "__main__":
    main()
