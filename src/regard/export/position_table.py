"""Positions as a table, for runtimes that compute none."""

import torch
from torch import Tensor

from regard.layers.embeddings import Embedding
from regard.model import TransformerConfig

_ROWS = 2048  # that stand for sinusoids, which have no end


def position_table(embedding: Embedding, config: TransformerConfig) -> Tensor:
    """Return the vectors of positions 0, 1, …, zeros for a model without any."""
    rows = config.longest or _ROWS
    if embedding.positions is None:
        return torch.zeros(rows, config.d_model)
    table: Tensor = embedding.positions(torch.arange(rows), rows)
    return table.detach().float().clone()
