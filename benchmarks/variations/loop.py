"""The training loop of the experiments, on the public API: Adam, linear warm-up and decay, batches of like length."""

import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import regard
from regard.data import padded

PAD, START, END, FIRST = 0, 1, 2, 3
"""The special tokens, and the first of the others."""
Pairs = Sequence[tuple[Sequence[int], Sequence[int]]]


@dataclass(frozen=True)
class Recipe:
    """How a small model is trained."""

    steps: int
    batch: int = 128
    peak: float = 1e-3
    warmup: int = 100
    seed: int = 1
    smoothing: float = 0.0


def batches(pairs: Pairs, batch: int, seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield source, decoder input and labels, epoch after epoch; examples of like length go together."""
    draw = random.Random(seed)
    while True:
        order = draw.sample(range(len(pairs)), len(pairs))
        pools = [order[start : start + 20 * batch] for start in range(0, len(order), 20 * batch)]
        chosen = []
        for pool in pools:
            pool.sort(key=lambda row: len(pairs[row][1]))
            chosen += [pool[start : start + batch] for start in range(0, len(pool), batch)]
        draw.shuffle(chosen)
        for rows in chosen:
            source = padded([[*pairs[row][0], END] for row in rows], PAD)
            target = padded([[START, *pairs[row][1]] for row in rows], PAD)
            labels = padded([[*pairs[row][1], END] for row in rows], PAD)
            yield source, target, labels


def train(model: regard.Transformer, pairs: Pairs, recipe: Recipe) -> dict[str, float]:
    """Train a model; return the seconds and the last loss."""
    torch.manual_seed(recipe.seed)
    regard.accelerate(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=(0.9, 0.98), weight_decay=0.01)
    model.train()
    began, examples, recent = time.perf_counter(), batches(pairs, recipe.batch, recipe.seed), 0.0
    for step in range(1, recipe.steps + 1):
        decay = (recipe.steps - step) / max(1, recipe.steps - recipe.warmup)
        optimizer.param_groups[0]["lr"] = recipe.peak * min(step / recipe.warmup, decay)
        source, target, labels = next(examples)
        states = model.decode(target, model.encode(source))
        real = labels != PAD
        loss = model.output.loss(states[real], labels[real], smoothing=recipe.smoothing) / int(real.sum())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recent = loss.item() if recent == 0.0 else 0.95 * recent + 0.05 * loss.item()
        if step % 100 == 0:
            print(f"step {step} loss {recent:.4f} {time.perf_counter() - began:.0f} s", flush=True)
    regard.unaccelerate(model)
    return {"seconds": time.perf_counter() - began, "loss": recent}


@torch.no_grad()
def greedy(
    model: regard.Transformer, sources: Sequence[Sequence[int]], longest: int, batch: int = 256
) -> list[list[int]]:
    """Decode greedily, with a cache; return the tokens before the end."""
    model.eval()
    written: dict[int, list[int]] = {}
    order = sorted(range(len(sources)), key=lambda row: len(sources[row]))
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        cache = model.start_cache(model.encode(padded([[*sources[row], END] for row in rows], PAD)))
        token = torch.full((len(rows), 1), START)
        steps, ended = [], torch.zeros(len(rows), 1, dtype=torch.bool)
        for _ in range(longest + 1):
            token = model.logits(model.decode(token, cache=cache)).argmax(-1)
            steps.append(token)
            ended |= token == END
            if ended.all():
                break
        for row, tokens in zip(rows, torch.cat(steps, dim=1).tolist(), strict=True):
            written[row] = tokens[: tokens.index(END)] if END in tokens else tokens
    return [written[row] for row in range(len(sources))]


def accuracy(model: regard.Transformer, pairs: Pairs) -> float:
    """Return the share of pairs whose target is found exactly, by greedy decoding."""
    outputs = greedy(model, [source for source, _ in pairs], max(len(target) for _, target in pairs) + 4)
    return sum(list(target) == output for (_, target), output in zip(pairs, outputs, strict=True)) / len(pairs)


def once(path: Path, compute: Any) -> dict[str, Any]:
    """Return what is in a file of results, or compute and write it."""
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    result: dict[str, Any] = compute()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    return result
