"""Long-range recall: `python -m benchmarks.variations.recall --out DIR`.

A decoder reads noise with one key in it, and predicts the key at the end. It is trained with the key up to 1,024
tokens before the end, and tested with the key 1,024 and 8,192 tokens before.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import regard
from benchmarks.variations.loop import once

KEYS, NOISE, QUESTION = 16, 16, 33
TRAINED, FAR = 1024, 8192
KINDS: dict[str, dict[str, Any]] = {
    "exact": {},
    "window 64": {"attention": {"pattern": {"kind": "window", "size": 64}}},
    "window 512, 2 layers": {"attention": {"pattern": {"kind": "window", "size": 512}}},
    "Longformer 64": {"attention": {"pattern": {"kind": "longformer", "size": 64, "global_tokens": 1}}},
    "BigBird": {"attention": {"pattern": {"kind": "bigbird"}}},
    "linear": {"attention": {"kind": "linear"}},
    "Performer": {"attention": {"kind": "performer"}},
}


def batch(rows: int, distances: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return tokens (B, T), the question last, and the keys."""
    T = int(distances.max()) + 1
    tokens_BT = torch.randint(1 + KEYS, 1 + KEYS + NOISE, (rows, T), generator=draw)
    keys_B = torch.randint(1, 1 + KEYS, (rows,), generator=draw)
    tokens_BT[torch.arange(rows), T - 1 - distances] = keys_B
    tokens_BT[:, -1] = QUESTION
    return tokens_BT, keys_B


def run(kind: str, steps: int) -> dict[str, Any]:
    """Train one model and test it."""
    torch.manual_seed(1)
    shape = dict(d_model=64, num_heads=2, d_ff=128, encoder_layers=0, decoder_layers=2, dropout=0.0, positions="none")
    config = regard.TransformerConfig(vocab_size=QUESTION + 1, norm_placement="pre", **{**shape, **KINDS[kind]})
    model = regard.Transformer(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    draw = torch.Generator().manual_seed(1)
    began = time.perf_counter()
    for step in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = 2e-3 * min(step / 50, (steps - step) / (steps - 50))
        # Short distances first: a key far away is found once a near one is.
        reach = max(8, int(TRAINED * min(1.0, 1.5 * step / steps)))
        tokens, keys = batch(16, torch.randint(1, reach + 1, (16,), generator=draw), draw)
        loss = torch.nn.functional.cross_entropy(model(target=tokens)[:, -1], keys)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            print(kind, step, f"{loss.item():.3f}", flush=True)
    seconds = time.perf_counter() - began
    return {"kind": kind, "seconds": seconds, **{str(d): tested(model, d, draw) for d in (TRAINED, FAR)}}


@torch.no_grad()
def tested(model: regard.Transformer, distance: int, draw: torch.Generator) -> float:
    """Return the share of keys that are recalled from so many tokens before."""
    model.eval()
    right = 0
    for _ in range(25):
        tokens, keys = batch(8, torch.full((8,), distance), draw)
        right += int((model(target=tokens)[:, -1].argmax(-1) == keys).sum())
    return right / 200


def main() -> None:
    """Train what is not trained yet, and print the shares."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for kind in KINDS:
        if arguments.only in kind:
            name = kind.replace(", ", "-").replace(" ", "-").lower()
            print(once(arguments.out / f"{name}.json", lambda k=kind: run(k, arguments.steps)), flush=True)


if __name__ == "__main__":
    main()
