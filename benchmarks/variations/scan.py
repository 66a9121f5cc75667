"""SCAN, length generalization: `python -m benchmarks.variations.scan --data DIR --out DIR`.

All of SCAN (simple train and test together) is split anew: 90 % of the items with at most `cutoff` actions are trained
on, all longer ones are the test (Csordás et al. 2021). Of the training items, 500 are held out for validation.
"""

import argparse
import gzip
import random
import statistics
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks.pages import table, write_page
from benchmarks.variations.loop import END, FIRST, PAD, START, Recipe, accuracy, once, train

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "relative": {"positions": {"kind": "shaw", "max_distance": 16}},
    "relative, shared": {"positions": {"kind": "shaw", "max_distance": 16}, "sharing": "all"},
    "none": {"positions": "none"},
    "randomized": {"positions": "rope", "random_positions": 128},
}
SHAPE: dict[str, Any] = dict(d_model=64, num_heads=4, d_ff=256, encoder_layers=2, decoder_layers=2, dropout=0.1)
SHARED: dict[str, Any] = dict(d_model=128, num_heads=8, d_ff=256, encoder_layers=3, decoder_layers=3, dropout=0.1)
"""One layer for a stack, so a wider one."""
PUBLISHED = {
    "plain": {22: 0.00, 24: 0.04, 26: 0.29},
    "relative": {22: 0.20, 24: 0.12, 26: 0.61},
    "relative, shared": {22: 0.20, 24: 0.12, 26: 1.00},
}
"""Csordás et al. 2021, as remembered."""
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
    shape = SHARED if variant == "relative, shared" else SHAPE
    config = regard.TransformerConfig(
        vocab_size=FIRST + len(words),
        pad_id=PAD,
        bos_id=START,
        eos_id=END,
        norm_placement="pre",
        **{**shape, **VARIANTS[variant]},
    )
    model = regard.Transformer(config)
    found = train(model, training, Recipe(steps=steps, seed=seed, batch=64, peak=2e-3))
    scores = {"validation": accuracy(model, validation), "test": accuracy(model, test)}
    parameters = sum(parameter.numel() for parameter in model.parameters())
    about = {"variant": variant, "cutoff": cutoff, "seed": seed, "steps": steps, "parameters": parameters}
    return {**about, **scores, **found}


def page(results: list[dict[str, Any]]) -> list[str]:
    """Return the table: validation and test of every variant and cutoff, the mean over seeds with their range."""
    rows = []
    for variant in VARIANTS:
        for cutoff in (26, 24, 22):
            found = [one for one in results if (one["variant"], one["cutoff"]) == (variant, cutoff)]
            if found:
                published = PUBLISHED.get(variant, {}).get(cutoff)
                rows.append(
                    [
                        f"{variant}, {cutoff}",
                        str(len(found)),
                        f"{found[0]['parameters'] / 1000:.0f} k",
                        _spread([one["validation"] for one in found]),
                        _spread([one["test"] for one in found]),
                        "" if published is None else f"{100 * published:.0f}",
                        f"{max(one['seconds'] for one in found) / 60:.0f}",
                    ]
                )
    columns = ["positions, cutoff", "seeds", "parameters", "validation", "longer", "published", "minutes, at most"]
    return [
        "All of SCAN split anew: trained on 90 % of the items with at most so many actions as the cutoff says (500 of",
        "them held out for validation), tested on all longer ones. Exact match by greedy decoding, in percent: the",
        "mean over seeds, with the lowest and the highest.",
        "",
        *table(columns, rows),
        "",
        f"2 + 2 layers, d_model {SHAPE['d_model']}, {SHAPE['num_heads']} heads, d_ff {SHAPE['d_ff']}; the shared model",
        f"has 3 + 3, d_model {SHARED['d_model']}, {SHARED['num_heads']} heads, d_ff {SHARED['d_ff']}. Pre-norm,",
        f"dropout 0.1, {results[0]['steps']:,} steps of 64 items, AdamW, peak rate 0.002.",
        "Randomized positions are rotary, of 128; relative positions are",
        "Shaw's, clipped at 16. Published: Csordás et al. 2021, as remembered, with Transformer-XL's relative",
        "positions, larger models and 50,000 steps of 256 items.",
    ]


def _spread(values: list[float]) -> str:
    percent = [100 * value for value in values]
    mean = f"{statistics.fmean(percent):.1f}"
    return mean if len(values) == 1 else f"{mean} ({min(percent):.1f}-{max(percent):.1f})"


def main() -> None:
    """Train what is not trained yet, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    results = []
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
            results.append(found)
    if not arguments.only:
        command = f"python -m benchmarks.variations.scan --data DIR --out DIR --steps {arguments.steps}"
        write_page(None, "scan", "SCAN, length generalization", command, page(results))


if __name__ == "__main__":
    main()
