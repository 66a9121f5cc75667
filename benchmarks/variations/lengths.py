"""Length generalization: `python -m benchmarks.variations.lengths --out DIR`.

Sequences of random symbols are copied, with every kind of positions: trained up to length 40, tested up to 160.
The curves are drawn into docs/lengths.png.
"""

import argparse
import random
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks.pages import table, write_page
from benchmarks.variations.loop import END, FIRST, PAD, START, Pairs, Recipe, greedy, once, train

SYMBOLS, TRAINED, LENGTHS = 16, 40, (10, 20, 30, 40, 50, 60, 80, 100, 120, 140, 160)
KINDS: dict[str, dict[str, Any]] = {
    "sinusoidal": {},
    "sinusoidal, randomized": {"random_positions": 512},
    "learned": {"positions": "learned", "max_positions": 256},
    "none": {"positions": "none"},
    "Shaw": {"positions": "shaw"},
    "T5": {"positions": "t5"},
    "ALiBi": {"positions": "alibi"},
    "RoPE": {"positions": "rope"},
    "RoPE, randomized": {"positions": "rope", "random_positions": 512},
}


def sequences(count: int, lengths: tuple[int, int], seed: int) -> Pairs:
    """Return random sequences, each to be copied."""
    draw = random.Random(seed)
    rows = [[FIRST + draw.randrange(SYMBOLS) for _ in range(draw.randint(*lengths))] for _ in range(count)]
    return [(row, row) for row in rows]


def token_accuracy(model: regard.Transformer, pairs: Pairs) -> float:
    """Return the share of target tokens that are right at their place."""
    outputs = greedy(model, [source for source, _ in pairs], max(len(target) for _, target in pairs) + 1)
    right = sum(
        a == b for (_, target), output in zip(pairs, outputs, strict=True) for a, b in zip(target, output, strict=False)
    )
    return right / sum(len(target) for _, target in pairs)


def run(kind: str, steps: int, seed: int = 1) -> dict[str, Any]:
    """Train one model, and test it at every length."""
    torch.manual_seed(seed)
    shape = dict(d_model=64, num_heads=4, d_ff=256, encoder_layers=2, decoder_layers=2, dropout=0.0)
    config = regard.TransformerConfig(
        vocab_size=FIRST + SYMBOLS,
        pad_id=PAD,
        bos_id=START,
        eos_id=END,
        norm_placement="pre",
        **{**shape, **KINDS[kind]},
    )
    model = regard.Transformer(config)
    found = train(model, sequences(50_000, (1, TRAINED), seed), Recipe(steps=steps, batch=64, peak=2e-3, seed=seed))
    scores = {str(length): token_accuracy(model, sequences(64, (length, length), 1000 + length)) for length in LENGTHS}
    return {"kind": kind, "steps": steps, "accuracy": scores, **found}


def page(results: dict[str, dict[str, Any]]) -> list[str]:
    """Return the table: a row for every kind, a column for every length."""
    rows = [
        [kind, *(f"{100 * found['accuracy'][str(length)]:.0f}" for length in LENGTHS)]
        for kind, found in results.items()
    ]
    return [
        f"Sequences of {SYMBOLS} symbols are copied. 2 + 2 layers, d_model 64, 4 heads, pre-norm,",
        f"{next(iter(results.values()))['steps']:,} steps of 64 sequences of up to {TRAINED} symbols, one seed.",
        "Percent of symbols that are right at their place, of 64 sequences of each length, decoded greedily.",
        "",
        *table(["positions", *map(str, LENGTHS)], rows),
    ]


def draw(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw a curve for every kind."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.axvspan(0, TRAINED, color="#eef2f7", label="lengths in training")
    styles = ("-", "--", ":", "-.")
    for number, (kind, found) in enumerate(results.items()):
        percent = [100 * found["accuracy"][str(length)] for length in LENGTHS]
        axes.plot(LENGTHS, percent, styles[number % 4], color=f"C{number}", marker="o", markersize=3, label=kind)
    axes.set(xlabel="length of the sequence", ylabel="symbols copied right, %", xlim=(0, max(LENGTHS)), ylim=(0, 103))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Train what is not trained yet, and write the page and the picture."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = {}
    for kind in KINDS:
        if arguments.only and arguments.only != kind:
            continue
        name = kind.replace(", ", "-").lower()
        results[kind] = once(arguments.out / f"{name}.json", lambda k=kind: run(k, arguments.steps))
        print(kind, results[kind], flush=True)
    if not arguments.only:
        command = f"python -m benchmarks.variations.lengths --out DIR --steps {arguments.steps}"
        write_page(None, "lengths", "Copying longer sequences than those in training", command, page(results))
        draw(results, Path(__file__).parents[2] / "docs" / "lengths.png")


if __name__ == "__main__":
    main()
