"""What every contestant of `make bench-training` shares: the sizes, the batches, the clock.

It runs in the peers' own environments, so it needs torch and nothing of regard's.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.alternating import settle

PAD, SMOOTHING, BETAS, EPS, RATE, CLIP = 0, 0.1, (0.9, 0.98), 1e-9, 1e-4, 1.0


@dataclass(frozen=True)
class Size:
    """A model and its batches."""

    vocab: int
    d_model: int
    d_ff: int
    heads: int
    layers: int
    dropout: float
    batch_tokens: int
    batches: int


SIZES = {
    # Transformer-Tiny for Multi30k, and a model like the paper's base.
    "tiny": Size(9_712, 128, 256, 4, 4, 0.3, 4096, 8),
    "base": Size(10_000, 512, 2048, 8, 6, 0.1, 1024, 5),
}

Step = Callable[[Tensor, Tensor, Tensor], None]
"""Source, target and labels to a step of training: forward, loss, backward, update."""


def make_batches(size: Size, path: Path) -> None:
    """Write batches of sentences as long as Multi30k's, of random tokens, padded to the longest of each."""
    random = np.random.default_rng(1)
    arrays: dict[str, Any] = {}
    for number in range(size.batches):
        middle = random.integers(9, 22)
        rows = size.batch_tokens // (int(middle) + 2)
        for side in ("source", "target"):
            lengths = np.clip(random.normal(middle, 1.0, rows).round().astype(int), 3, int(middle) + 1)
            table = random.integers(4, size.vocab, (rows, int(lengths.max()) + 1))
            for row, length in enumerate(lengths):
                table[row, length:] = PAD
            arrays[f"{side}{number}"] = table
    np.savez(path, **arrays)


def has_bfloat16() -> bool:
    """Whether the processor has instructions for bfloat16."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def run(make_step: Callable[[Size], Step]) -> None:
    """Time the steps of a contestant and print seconds per thousand target tokens; arguments: size, file of batches."""
    size = SIZES[sys.argv[1]]
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(0)
    with np.load(sys.argv[2]) as arrays:
        batches = []
        for number in range(size.batches):
            source, target = (torch.from_numpy(arrays[f"{side}{number}"]) for side in ("source", "target"))
            batches.append((source, target[:, :-1].contiguous(), target[:, 1:].contiguous()))
    step = make_step(size)
    half = os.environ.get("BENCH_BFLOAT16") == "1"
    if half and not has_bfloat16():  # a step may take minutes
        batches = batches[:1]

    def all_steps() -> None:
        for source, target, labels in batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                step(source, target, labels)

    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        for batch in batches[:2]:
            step(*batch)
    settle()
    began = time.perf_counter()
    all_steps()
    seconds = time.perf_counter() - began
    tokens = sum(int((labels != PAD).sum()) for _, _, labels in batches)
    print(json.dumps({"seconds": 1000 * seconds / tokens}))


def updated_by_adam(model: torch.nn.Module, loss: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Step:
    """The loop that everybody writes: zero, forward, backward, clip, update."""
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, betas=BETAS, eps=EPS)
    model.train()

    def step(source: Tensor, target: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad()
        loss(source, target, labels).backward()  # type: ignore[no-untyped-call,unused-ignore]
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()

    return step
