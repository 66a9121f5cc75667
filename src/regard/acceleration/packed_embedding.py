"""From tokens and their positions to rows, for a model that is only used."""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import InputError
from regard.kernels.bindings import kernels
from regard.kernels.dispatch import readable
from regard.layers.embeddings import Embedding

Ints = NDArray[np.int64]


class PackedEmbedding:
    """The input of a stack, for flat rows."""

    def __init__(self, embedding: Embedding) -> None:
        self._tokens, self._positions, self._norm = embedding.tokens, embedding.positions, embedding.norm

    def check(self, tokens_R: Ints) -> None:
        """Refuse tokens that are not in the vocabulary, where they are not the model's own."""
        W = self._tokens.weight.size(0)
        if len(tokens_R) and not 0 <= tokens_R.min() <= tokens_R.max() < W:
            wrong = next(token for token in tokens_R.tolist() if not 0 <= token < W)
            raise InputError(f"token {wrong} is outside the vocabulary of {W}")

    def __call__(self, tokens_R: Ints, positions_R: Ints) -> Tensor:
        """Return a row (R, D) for each token at its position."""
        weight_WD = self._tokens.weight
        R, D = len(tokens_R), weight_WD.size(1)
        table_TD = None
        if self._positions is not None and R:
            table_TD = self._positions.rows(int(positions_R.max()) + 1)
        library = kernels()
        if library is not None and readable(weight_WD) and (table_TD is None or readable(table_TD)):
            tokens_R, positions_R = np.ascontiguousarray(tokens_R), np.ascontiguousarray(positions_R)
            x_RD = torch.empty(R, D, dtype=torch.float32, device="cpu")
            library.regard_embed(
                weight_WD.data_ptr(),
                None if table_TD is None else table_TD.data_ptr(),
                tokens_R.ctypes.data,
                positions_R.ctypes.data,
                R,
                D,
                self._tokens.scale,
                x_RD.data_ptr(),
            )
        else:
            x_RD = F.embedding(torch.from_numpy(tokens_R), weight_WD) * self._tokens.scale
            if table_TD is not None:
                x_RD = x_RD + table_TD[torch.from_numpy(positions_R)]
        return x_RD if self._norm is None else self._norm(x_RD)
