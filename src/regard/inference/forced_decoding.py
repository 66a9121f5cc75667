"""What a model computes for targets that are given: log-probabilities and attention weights."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.data import padded
from regard.errors import InputError
from regard.model import Transformer

Pair = tuple[list[int], list[int]]
"""The tokens of a source, with its tag and its end, and of a target, without start and end.

A decoder alone reads no source: it is empty."""

_BATCH_TOKENS = 1024


def token_log_probabilities(model: Transformer, pairs: Sequence[Pair]) -> list[list[float]]:
    """Return log p of each token of given targets under their sources, and of their end."""
    if model.encoder is None and any(source for source, _ in pairs):
        raise InputError("a decoder alone reads no source; a prompt is the beginning of a target")
    order = sorted(range(len(pairs)), key=lambda index: max(map(len, pairs[index])))
    found: dict[int, list[float]] = {}
    while order:
        size = max(1, _BATCH_TOKENS // max(1, *map(len, pairs[order[-1]])))  # by the longest of what is left
        chosen, order = order[-size:], order[:-size]
        found.update(zip(chosen, _log_probabilities(model, [pairs[index] for index in chosen]), strict=True))
    return [found[index] for index in range(len(pairs))]


def cross_attention(model: Transformer, source: list[int], target: list[int]) -> Tensor:
    """Return the weights (L, H, T, S) with which a target's tokens, and its end, attend to the source."""
    start, _ = _start_and_end(model)
    device = model.device
    source_1S, given_1T = (torch.tensor([tokens], device=device) for tokens in (source, [start, *target]))
    return model.cross_attention(source_1S, given_1T)[:, 0].cpu()


@torch.no_grad()
def _log_probabilities(model: Transformer, pairs: list[Pair]) -> list[list[float]]:
    start, end = _start_and_end(model)
    pad, device = model.config.pad_id, model.device
    source_BS = padded([source for source, _ in pairs], pad).to(device)
    given_BT = padded([[start, *target] for _, target in pairs], pad).to(device)
    labels_BT = padded([[*target, end] for _, target in pairs], pad).to(device)
    logits_BTW = model(given_BT) if model.encoder is None else model(source_BS, given_BT)
    logs_BTW: Tensor = logits_BTW.log_softmax(-1)
    logs_BT = logs_BTW.gather(2, labels_BT[:, :, None])[:, :, 0].double()
    return [row[: len(target) + 1] for row, (_, target) in zip(logs_BT.tolist(), pairs, strict=True)]


def _start_and_end(model: Transformer) -> tuple[int, int]:
    config = model.config
    if config.bos_id is None or config.eos_id is None:
        raise InputError("the model's config has no bos_id and eos_id, which start and end a target")
    return config.bos_id, config.eos_id
