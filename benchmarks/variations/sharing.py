"""Shared layers at equal size: `python -m benchmarks.variations.sharing --data DIR --out DIR`.

Multi30k (English to German) with the package's own recipe, shortened: Transformer-Tiny with 4 + 4 layers, and models
whose layers are shared, deeper with as many parameters or fewer. The score is BLEU on `valid`, beam 5.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks.pages import table, write_page
from benchmarks.variations.loop import once
from regard.training import Run
from regard.training.evaluation import score_run

RECIPE = Path(__file__).parents[2] / "src" / "regard" / "recipes" / "multi30k.toml"
SHORTENED = ["schedule.warmup=400", "schedule.cooldown=800", "training.dropout_rise=600"]
VARIANTS: dict[str, list[str]] = {
    "unshared 4 + 4": [],
    "cycle-reversed 3 + 3 to 6 + 6": [
        "model.encoder_layers=6",
        "model.decoder_layers=6",
        'model.sharing={kind="cycle-reversed", layers=3}',
    ],
}


def run(data: Path, out: Path, variant: str, seed: int, epochs: int) -> dict[str, Any]:
    """Train one model; return its best score on `valid`."""
    changes = [*SHORTENED, f"training.seed={seed}", f"training.epochs={epochs}", *VARIANTS[variant]]
    regard.train(Run.from_toml(RECIPE.read_text(encoding="utf-8"), changes=changes, base=data.resolve()), out)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["kind"] == "steps"]
    parameters = sum(p.numel() for p in regard.Transformer.load(out).parameters())
    return {
        "variant": variant,
        "seed": seed,
        "epochs": epochs,
        "parameters": parameters,
        "valid BLEU": score_run(out, out, metrics=("bleu",), beam=5)["bleu"].value,
        "minutes": steps[-1]["seconds"] / 60,
    }


def page(results: list[dict[str, Any]]) -> list[str]:
    """Return the table."""
    rows = []
    for variant in VARIANTS:
        found = [one for one in results if one["variant"] == variant]
        rows.append(
            [
                variant,
                f"{found[0]['parameters'] / 1e6:.2f} M",
                *(f"{one['valid BLEU']:.2f}" for one in found),
                f"{max(one['minutes'] for one in found):.0f}",
            ]
        )
    return [
        f"Multi30k, English to German, the package's own recipe (`multi30k`) for {results[0]['epochs']} epochs with a",
        "warm-up of 400 steps and a cooldown of 800, one thread a run. BLEU on `valid`, beam 5.",
        "",
        *table(["layers", "parameters", "seed 1", "seed 2", "minutes, at most"], rows),
    ]


def main() -> None:
    """Train what is not trained yet, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = []
    for seed in (1, 2):
        for variant in VARIANTS:
            name = f"{variant.replace(' ', '-')}-{seed}"
            if arguments.only in name:
                found = once(
                    arguments.out / f"{name}.json",
                    lambda n=name, v=variant, s=seed: run(arguments.data, arguments.out / n, v, s, arguments.epochs),
                )
                print(found, flush=True)
                results.append(found)
    if not arguments.only:
        command = f"python -m benchmarks.variations.sharing --data DIR --out DIR --epochs {arguments.epochs}"
        write_page(None, "sharing", "Shared layers at equal size", command, page(results))


if __name__ == "__main__":
    main()
