"""Long-range recall: `python -m benchmarks.variations.recall --out DIR`.

A model of two layers reads noise with one key in it, and predicts the key at the question, the last token. It is
trained with the key up to 1,024 tokens before the question, and tested with the key 1,024 and 8,192 tokens before;
other tokens come first, so that the key is never one of those that all may attend to.
A causal decoder, or an encoder for what only an encoder has.
"""

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import regard
from benchmarks.pages import table, write_page
from benchmarks.variations.loop import once

KEYS, NOISE, QUESTION = 16, 16, 33
TRAINED, FAR = 1024, 8192
BEFORE = 128  # tokens before the farthest key
TESTED = 200


@dataclass(frozen=True)
class Kind:
    """A kind of attention, where it is used, and why it cannot recall a key from far away, if it cannot."""

    attention: dict[str, Any] = field(default_factory=dict)
    encoder: bool = False
    limit: str = ""
    steps: int = 600
    """Some take longer until they find near keys."""


KINDS: dict[str, Kind] = {
    "exact": Kind(),
    "window of 768": Kind(
        {"pattern": {"kind": "window", "size": 768}}, limit="2 layers of 768 reach 1,536 tokens back"
    ),
    "window of 64": Kind({"pattern": {"kind": "window", "size": 64}}, limit="2 layers of 64 reach 128 tokens back"),
    "window of 64, 4 sinks": Kind(
        {"pattern": {"kind": "window", "size": 64, "sinks": 4}},
        limit="as a window of 64; the first tokens have not seen the key",
    ),
    "BigBird": Kind(
        {"pattern": {"kind": "bigbird"}}, limit="random blocks: not every key is two steps from the question"
    ),
    "linear": Kind({"kind": "linear"}, steps=2000),
    "retention": Kind(
        {"kind": {"kind": "linear", "gating": "retention"}},
        limit="what was read fades by a fixed factor with each token",
    ),
    "GLA": Kind({"kind": {"kind": "linear", "gating": "gla"}}),
    "Performer": Kind({"kind": "performer"}),
    "Longformer, encoder": Kind({"pattern": {"kind": "longformer", "size": 64, "global_tokens": 1}}, encoder=True),
    "Linformer, encoder": Kind(
        {"kind": {"kind": "linformer", "width": 64, "max_length": BEFORE + FAR + 1}},
        encoder=True,
        limit="64 fixed mixtures of all positions, in which one key is lost",
        steps=2000,
    ),
    "Nyström, encoder": Kind({"kind": {"kind": "nystrom", "landmarks": 64}}, encoder=True),
}


class Reader(torch.nn.Module):
    """Two layers of an encoder or of a decoder, and the logits of the keys at the last token."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        layers = (2, 0) if kind.encoder else (0, 2)
        config = regard.TransformerConfig(
            vocab_size=QUESTION + 1,
            d_model=64,
            num_heads=2,
            d_ff=128,
            encoder_layers=layers[0],
            decoder_layers=layers[1],
            dropout=0.0,
            positions="none",
            norm_placement="pre",
            attention=kind.attention,
        )
        self.model = regard.Transformer(config)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Return the logits at the last token."""
        decodes = self.model.config.kind == "decoder-only"
        states_BTD = self.model.decode(tokens_BT) if decodes else self.model.encode(tokens_BT).states_BSD
        return self.model.logits(states_BTD[:, -1:])[:, 0]


def batch(rows: int, distances: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return tokens (B, T), the question last, and the keys."""
    T = BEFORE + int(distances.max()) + 1
    tokens_BT = torch.randint(1 + KEYS, 1 + KEYS + NOISE, (rows, T), generator=draw)
    keys_B = torch.randint(1, 1 + KEYS, (rows,), generator=draw)
    tokens_BT[torch.arange(rows), T - 1 - distances] = keys_B
    tokens_BT[:, -1] = QUESTION
    return tokens_BT, keys_B


def run(kind: str) -> dict[str, Any]:
    """Train one model and test it."""
    torch.manual_seed(1)
    model, steps = Reader(KINDS[kind]), KINDS[kind].steps
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    draw = torch.Generator().manual_seed(1)
    began = time.perf_counter()
    for step in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = 2e-3 * min(step / 50, (steps - step) / (steps - 50))
        # Short distances first: a key far away is found once a near one is.
        reach = max(8, int(TRAINED * min(1.0, 1.5 * step / steps)))
        tokens, keys = batch(16, torch.randint(1, reach + 1, (16,), generator=draw), draw)
        loss = torch.nn.functional.cross_entropy(model(tokens), keys)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            print(kind, step, f"{loss.item():.3f}", flush=True)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "steps": steps, **{str(d): tested(model, d, draw) for d in (TRAINED, FAR)}}


@torch.no_grad()
def tested(model: Reader, distance: int, draw: torch.Generator) -> float:
    """Return the share of keys that are recalled from so many tokens before."""
    model.eval()
    right, rows = 0, 8
    for _ in range(TESTED // rows):
        tokens, keys = batch(rows, torch.full((rows,), distance), draw)
        right += int((model(tokens).argmax(-1) == keys).sum())
    return right / TESTED


def page(found: dict[str, dict[str, Any]]) -> list[str]:
    """Return the table."""
    rows = [
        [
            name,
            *(f"{100 * result[str(distance)]:.1f}" for distance in (TRAINED, FAR)),
            f"{result['steps']:,}",
            KINDS[name].limit,
        ]
        for name, result in found.items()
    ]
    return [
        "Two layers, d_model 64, 2 heads, no positions; steps of 16 sequences with the key up to",
        f"{TRAINED:,} tokens before the question. One of {KEYS} keys among {NOISE} other symbols: guessing is right in",
        f"{100 / KEYS:.1f} %. Percent of {TESTED} keys that are recalled.",
        "",
        *table(["attention", f"{TRAINED:,} before", f"{FAR:,} before", "steps", "what limits it"], rows),
    ]


def main() -> None:
    """Train what is not trained yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for kind in KINDS:
        if arguments.only in kind:
            name = kind.replace(", ", "-").replace(" ", "-").lower()
            found[kind] = once(arguments.out / f"{name}.json", lambda k=kind: run(k))
            print(kind, found[kind], flush=True)
    if not arguments.only:
        command = "python -m benchmarks.variations.recall --out DIR"
        write_page(None, "recall", "Recall from far away", command, page(found))


if __name__ == "__main__":
    main()
