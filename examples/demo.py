"""The models of the package at work: translations both ways, a title for an abstract, answers about a story.

python examples/demo.py
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

import regard
from regard.inspection import draw_attention

SENTENCES = {
    "en": [
        "Ich habe Hunger.",
        "Wo ist der Bahnhof?",
        "Das Wetter ist heute sehr schön.",
        "Das Buch kostet 12,50 Euro. Du findest es unter www.example.org.",
    ],
    "de": [
        "I don't know what to say.",
        "How much does this book cost?",
        "She has been living in Boston for three years.",
        "Tom is tired. He wants to go home.",
    ],
}
ABSTRACT = """
Neural machine translation needs large parallel corpora, which most languages do not have. We present a method that
trains a translation model for low-resource languages with monolingual data only: sentences are translated by the
current model and the pairs are used for the next step of training. Experiments on six languages show that
back-translation improves BLEU by up to five points over a baseline that is trained on the parallel data alone.
"""
STORY = "Mary picked up the milk. John went to the garden. Mary travelled to the kitchen. John moved to the office."
QUESTIONS = ["Where is John?", "Where is the milk?"]
PICTURE = Path("attention.png")

console = Console(highlight=False)


@contextmanager
def timed(title: str) -> Iterator[None]:
    """Print a title, and behind it how long it took."""
    began = time.perf_counter()
    console.print(f"\n[bold]{title}[/bold]", end="")
    yield
    console.print(f"\n  [dim]{1000 * (time.perf_counter() - began):.0f} ms[/dim]")


def show(source: str, result: str) -> None:
    """Print a text and what came of it."""
    console.print(f"\n  {source}\n    [green]{result}[/green]", end="")


def main() -> None:
    """Show it."""
    translator = regard.load("de-en")
    for language, sentences in SENTENCES.items():
        with timed(f"translate into {language}"):
            for source, translation in zip(sentences, translator.translate(sentences, to=language), strict=True):
                show(source, translation.text)
    summarizer = regard.load("titles")
    with timed("summarize: a title for an abstract"):
        show(" ".join(ABSTRACT.split()), summarizer.summarize(ABSTRACT).text)
    answerer = regard.load("stories")
    with timed("answer questions about a story"):
        console.print(f"\n  {STORY}", end="")
        for question, answer in zip(QUESTIONS, answerer.answer(QUESTIONS, STORY), strict=True):
            show(question, answer.text)
    source = SENTENCES["en"][2]
    target = translator.translate(source, to="en").text
    draw_attention(translator.attention(source, target, to="en"), PICTURE)
    console.print(f"\n{PICTURE}: the attention weights of “{target}”")
    console.print('\nYour turn: [bold]echo "Guten Morgen!" | .venv/bin/regard translate --to en[/bold]')


if __name__ == "__main__":
    main()
