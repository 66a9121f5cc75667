"""ListOps: `python -m benchmarks.variations.listops --out DIR`.

Nested lists of digits under MIN, MAX, MED (the median) and SM (the sum modulo 10), generated after the published
grammar (Nangia & Bowman 2018; Tay et al. 2021), up to 512 tokens. The label is the value of the whole, a digit. The
model is the published tiny one: 2 layers, d_model 64, d_ff 128, 2 heads, batches of 32; the mean of all states is
classified.
"""

import argparse
import json
import random
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import regard
from benchmarks.pages import table, write_page
from benchmarks.variations.loop import once
from regard.data import padded

OPERATORS: dict[str, Callable[[Sequence[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: sorted(values)[len(values) // 2] if len(values) % 2 else _middle(values),
    "[SM": lambda values: sum(values) % 10,
}
VOCABULARY = {token: 1 + number for number, token in enumerate([*map(str, range(10)), *OPERATORS, "]"])}
LONGEST = 512
KINDS: dict[str, dict[str, Any]] = {
    "exact": {},
    "window": {"pattern": {"kind": "window", "size": 32}},
    "BigBird": {"pattern": {"kind": "bigbird", "block": 32}},
    "linear": {"kind": "linear"},
    "Performer": {"kind": {"kind": "performer", "features": 64}},
    "Linformer": {"kind": {"kind": "linformer", "width": 64, "max_length": LONGEST}},
    "Nyström": {"kind": {"kind": "nystrom", "landmarks": 64}},
}

PUBLISHED = {"exact": "37.1", "Performer": "18.8", "Linformer": "37.3", "Nyström": "37.2"}


Pair = tuple[list[int], int]
"""The tokens of an expression, and its value."""


def _middle(values: Sequence[int]) -> int:
    ordered = sorted(values)
    return (ordered[len(ordered) // 2 - 1] + ordered[len(ordered) // 2]) // 2


def expression(draw: random.Random, depth: int = 1) -> tuple[list[str], int]:
    """Return the tokens of a random expression, and its value: at most 10 deep, at most 10 arguments each."""
    if depth > 1 and (depth >= 10 or draw.random() < 0.75):
        digit = draw.randrange(10)
        return [str(digit)], digit
    operator = draw.choice(list(OPERATORS))
    parts = [expression(draw, depth + 1) for _ in range(draw.randint(2, 10))]
    return [operator, *(token for tokens, _ in parts for token in tokens), "]"], OPERATORS[operator](
        [v for _, v in parts]
    )


def examples(count: int, seed: int) -> list[Pair]:
    """Return expressions of 32 to 512 tokens as numbers, with their values."""
    draw = random.Random(seed)
    found: list[Pair] = []
    while len(found) < count:
        tokens, value = expression(draw)
        if 32 <= len(tokens) <= LONGEST:
            found.append(([VOCABULARY[token] for token in tokens], value))
    return found


class Classifier(torch.nn.Module):
    """An encoder, the mean of its states, and a layer over the ten digits."""

    def __init__(self, attention: dict[str, Any]) -> None:
        super().__init__()
        config = regard.TransformerConfig(
            vocab_size=1 + len(VOCABULARY),
            d_model=64,
            num_heads=2,
            d_ff=128,
            encoder_layers=2,
            decoder_layers=0,
            norm_placement="pre",
            positions="learned",
            max_positions=LONGEST,
            attention=attention,
        )
        self.encoder = regard.Transformer(config)
        self.digits = torch.nn.Linear(64, 10)

    def forward(self, tokens_BS: Tensor) -> Tensor:
        """Return the logits of the digits."""
        states_BSD, mask = self.encoder.encode(tokens_BS)
        real_BS1 = mask[:, 0, 0, :, None]
        logits: Tensor = self.digits((states_BSD * real_BS1).sum(1) / real_BS1.sum(1))
        return logits


def batches(pairs: Sequence[Pair], draw: random.Random) -> Iterator[list[Pair]]:
    """Return batches of 32 for ever, each of expressions of about the same length."""
    while True:
        pool = sorted(draw.sample(pairs, 512), key=lambda pair: len(pair[0]))
        some = [pool[start : start + 32] for start in range(0, len(pool), 32)]
        draw.shuffle(some)
        yield from some


def run(kind: str, steps: int, minutes: float) -> dict[str, Any]:
    """Train one model and test it."""
    torch.manual_seed(1)
    training, test = examples(20_000, 1), examples(1_000, 2)
    model = Classifier(KINDS[kind])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    began, done = time.perf_counter(), 0
    for step, batch in enumerate(islice(batches(training, random.Random(1)), steps), 1):
        optimizer.param_groups[0]["lr"] = 1e-3 * min(step / 200, 1.0)
        tokens, values = padded([tokens for tokens, _ in batch], 0), torch.tensor([value for _, value in batch])
        loss = torch.nn.functional.cross_entropy(model(tokens), values)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        done = step
        if step % 100 == 0:
            print(kind, step, f"{loss.item():.3f}", f"{time.perf_counter() - began:.0f} s", flush=True)
        if time.perf_counter() - began > 60 * minutes:
            break
    seconds = time.perf_counter() - began
    model.eval()
    right = 0
    with torch.no_grad():
        for start in range(0, len(test), 50):
            chunk = test[start : start + 50]
            digits = model(padded([tokens for tokens, _ in chunk], 0)).argmax(-1).tolist()
            right += sum(digit == value for digit, (_, value) in zip(digits, chunk, strict=True))
    return {
        "kind": kind,
        "steps": done,
        "accuracy": right / len(test),
        "milliseconds a step": 1000 * seconds / done,
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def page(found: dict[str, dict[str, Any]]) -> list[str]:
    """Return the table."""
    rows = [
        [
            kind,
            f"{100 * one['accuracy']:.1f}",
            f"{one['steps']:,}",
            f"{one['milliseconds a step']:.0f}",
            f"{one['peak MB']:,.0f}",
            PUBLISHED.get(kind, ""),
        ]
        for kind, one in found.items()
    ]
    return [
        "Expressions of 32 to 512 tokens after the published grammar, 20,000 to learn from and 1,000 to test. An",
        "encoder of 2 layers, d_model 64, d_ff 128, 2 heads, batches of 32 of about the same length, AdamW at 0.001;",
        "each kind in a process of its own, at most 20 minutes. Guessing the most frequent digit is right in",
        f"{100 * most_frequent(examples(1_000, 2)):.1f} %. Memory is that of the process, with torch (about 250 MB).",
        "Other work ran beside it, on the other core.",
        "",
        *table(["attention", "accuracy, %", "steps", "ms a step", "peak MB", "published, %"], rows),
        "",
        "Published: mlpen/Nystromformer, expressions of up to 2,000 tokens, 5,000 steps.",
    ]


def most_frequent(pairs: Sequence[Pair]) -> float:
    """Return the share of the most frequent value."""
    values = [value for _, value in pairs]
    return max(values.count(digit) for digit in range(10)) / len(values)


def main() -> None:
    """Train one kind, or write the page of all that are trained."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--only", help="The kind: a process of its own for each, for its peak memory.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.only is None:
        found = {kind: json.loads((arguments.out / f"{kind.lower()}.json").read_text()) for kind in KINDS}
        write_page(None, "listops", "ListOps", "python -m benchmarks.variations.listops --out DIR", page(found))
        return
    name, kind = arguments.only.lower(), arguments.only
    print(once(arguments.out / f"{name}.json", lambda: run(kind, arguments.steps, arguments.minutes)), flush=True)


if __name__ == "__main__":
    main()
