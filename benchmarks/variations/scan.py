"""SCAN, length generalization: `python -m benchmarks.variations.scan --data DIR --out DIR`.

All of SCAN (simple train and test together) is split anew: 90 % of the items with at most `cutoff` actions are trained
on, all longer ones are the test (Csordás et al. 2021). Of the training items, 500 are held out for validation.
"""

import argparse
import gzip
import random
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks.variations.loop import END, FIRST, PAD, START, Recipe, accuracy, once, train

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "relative": {"positions": {"kind": "shaw", "max_distance": 16}},
    "relative, shared": {"positions": {"kind": "shaw", "max_distance": 16}, "sharing": "all"},
    "none": {"positions": "none"},
    "randomized": {"random_positions": 256},
}
SHAPE: dict[str, Any] = dict(d_model=64, num_heads=4, d_ff=256, encoder_layers=2, decoder_layers=2, dropout=0.1)
JOBS = [(26, seed) for seed in (1, 2, 3)] + [(22, 1), (24, 1)]


def read(data: Path) -> list[tuple[list[str], list[str]]]:
    """Return all commands with their actions, each once, in order."""
    pairs = set()
    for part in ("train", "test"):
        with gzip.open(data / f"simple.{part}.txt.gz", "rt", encoding="utf-8") as file:
            for line in file:
                command, _, actions = line.strip().removeprefix("IN: ").partition(" OUT: ")
                pairs.add((command, actions))
    return [(command.split(), actions.split()) for command, actions in sorted(pairs)]


def split(items: list[Any], cutoff: int) -> tuple[list[Any], list[Any], list[Any]]:
    """Return what is trained on, what is validated on, and the longer items."""
    short = [item for item in items if len(item[1]) <= cutoff]
    random.Random(cutoff).shuffle(short)
    kept = short[: int(0.9 * len(short))]
    return kept[500:], kept[:500], [item for item in items if len(item[1]) > cutoff]


def run(data: Path, variant: str, cutoff: int, seed: int, steps: int) -> dict[str, Any]:
    """Train and test one model."""
    items = read(data)
    words = sorted({word for item in items for side in item for word in side})
    number = {word: FIRST + index for index, word in enumerate(words)}
    encoded = [tuple([number[word] for word in side] for side in item) for item in items]
    training, validation, test = split(encoded, cutoff)
    torch.manual_seed(seed)
    config = regard.TransformerConfig(
        vocab_size=FIRST + len(words),
        pad_id=PAD,
        bos_id=START,
        eos_id=END,
        norm_placement="pre",
        **{**SHAPE, **VARIANTS[variant]},
    )
    model = regard.Transformer(config)
    found = train(model, training, Recipe(steps=steps, seed=seed, batch=64, peak=2e-3))
    scores = {"validation": accuracy(model, validation), "test": accuracy(model, test)}
    return {"variant": variant, "cutoff": cutoff, "seed": seed, "steps": steps, **scores, **found}


def main() -> None:
    """Train what is not trained yet, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for cutoff, seed in JOBS:
        for variant in VARIANTS:
            name = f"{variant.replace(', ', '-')}-{cutoff}-{seed}"
            if arguments.only and arguments.only not in name:
                continue
            found = once(
                arguments.out / f"{name}.json",
                lambda v=variant, c=cutoff, s=seed: run(arguments.data, v, c, s, arguments.steps),
            )
            print(name, found, flush=True)


if __name__ == "__main__":
    main()
