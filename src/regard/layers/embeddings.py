"""From tokens to vectors and back."""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.devices import to_device
from regard.errors import InputError
from regard.layers.dropout import Dropout
from regard.layers.positions import AbsolutePositions, TokenPositions
from regard.ops import label_smoothed_cross_entropy, r_drop_loss


class TokenEmbedding(nn.Module):
    """The rows of the embedding matrix E (W, D) for these tokens, times √d_model where `scaled` as in the paper."""

    def __init__(
        self, vocab_size: int, d_model: int, *, scaled: bool = True, tied_to: nn.Parameter | None = None
    ) -> None:
        super().__init__()
        self.scale = d_model**0.5 if scaled else 1.0
        self.weight = _token_matrix(vocab_size, d_model, tied_to)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Look tokens up."""
        return self._rows_of(self.matrix(), tokens_BT)

    def matrix(self) -> Tensor:
        """Return the embedding matrix (W, D)."""
        return self.weight

    def _rows_of(self, matrix_WD: Tensor, tokens_BT: Tensor) -> Tensor:
        check_tokens(tokens_BT)
        try:
            embedded_BTD = F.embedding(tokens_BT.long(), matrix_WD)
        except IndexError:
            raise InputError(self._out_of_range(tokens_BT)) from None
        return embedded_BTD if self.scale == 1.0 else embedded_BTD * self.scale

    def _out_of_range(self, tokens_BT: Tensor) -> str:
        W = self.weight.size(0)
        row, column = (tokens_BT.lt(0) | tokens_BT.ge(W)).nonzero()[0].tolist()
        return f"token {int(tokens_BT[row, column])} at row {row}, position {column} is outside the vocabulary of {W}"


class FactorizedTokenEmbedding(TokenEmbedding):
    """Rows of a matrix (W, E), E < D, projected to the width of the model by a matrix (D, E) (ALBERT, Lan et al. 2020).

    Together they are the embedding matrix E Pᵀ (W, D), of rank E.
    """

    def __init__(
        self,
        vocab_size: int,
        width: int,
        d_model: int,
        *,
        scaled: bool = True,
        tied_to: "FactorizedTokenEmbedding | None" = None,
    ) -> None:
        super().__init__(vocab_size, width, tied_to=None if tied_to is None else tied_to.weight)
        self.scale = d_model**0.5 if scaled else 1.0
        projection: nn.Parameter | None = None if tied_to is None else tied_to.projection
        self.projection: nn.Parameter = _token_matrix(d_model, width, projection, d_model)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Look tokens up."""
        return F.linear(self._rows_of(self.weight, tokens_BT), self.projection)

    def matrix(self) -> Tensor:
        """Return the embedding matrix (W, D)."""
        return self.weight @ self.projection.T


def check_tokens(tokens_BT: Tensor) -> None:
    """Refuse what cannot be a batch of tokens."""
    if tokens_BT.dim() != 2 or tokens_BT.is_floating_point() or tokens_BT.dtype == torch.bool:
        shape = tuple(tokens_BT.shape)
        raise InputError(f"tokens are integers of shape (batch, length); got {tokens_BT.dtype} of shape {shape}")


def _token_matrix(rows: int, width: int, tied_to: nn.Parameter | None, fan: int | None = None) -> nn.Parameter:
    """Return another module's matrix where the two are tied, or a new one with a deviation of 1/√width or 1/√fan."""
    if tied_to is not None:
        return tied_to
    weight = nn.Parameter(torch.empty(rows, width))
    nn.init.normal_(weight, std=(width if fan is None else fan) ** -0.5)
    return weight


class Embedding(nn.Module):
    """The input of a stack: the sum of token and position embeddings, an optional norm, then dropout."""

    def __init__(
        self,
        tokens: TokenEmbedding,
        positions: AbsolutePositions | None = None,
        *,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.tokens, self.positions, self.norm = tokens, positions, norm
        self.dropout = Dropout(dropout)

    def forward(
        self,
        tokens_BT: Tensor,
        offset: int | NDArray[np.int64] = 0,
        lengths: NDArray[np.int64] | None = None,
        *,
        positions: TokenPositions | None = None,
    ) -> Tensor:
        """Embed tokens whose rows start at position `offset`: one number, or one a row.

        `lengths` says how many tokens of each row are real; what comes after them may lie beyond any table. `positions`
        are given where they do not follow one another.
        """
        x_BTD: Tensor = self.tokens(tokens_BT)
        if self.positions is not None and tokens_BT.numel() > 0:
            if positions is None:
                positions = _positions(offset, lengths, tokens_BT.size(1), tokens_BT.device)
            x_BTD = x_BTD + self.positions(*positions)
        if self.norm is not None:
            x_BTD = self.norm(x_BTD)
        dropped: Tensor = self.dropout(x_BTD)
        return dropped


def _positions(
    offset: int | NDArray[np.int64], lengths: NDArray[np.int64] | None, T: int, device: torch.device
) -> TokenPositions:
    """Return the positions of tokens that follow one another; padding stays below the end of the last real one."""
    if isinstance(offset, int) and lengths is None:
        return TokenPositions(torch.arange(offset, offset + T, device=device), offset + T)
    end = int(np.max(offset + (T if lengths is None else lengths)))
    positions_BT = np.minimum(np.reshape(offset, (-1, 1)) + np.arange(T), max(end - 1, 0))
    return TokenPositions(to_device(torch.from_numpy(positions_BT), device), end)


class OutputProjection(nn.Module):
    """Logits over the vocabulary: h·Wᵀ + b, where W may be the embedding matrix itself (tied weights)."""

    def __init__(self, vocab_size: int, d_model: int, *, tied_to: nn.Parameter | None = None, bias: bool = False):
        super().__init__()
        self.weight = _token_matrix(vocab_size, d_model, tied_to)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None

    def forward(self, states_BTD: Tensor) -> Tensor:
        """Return the logits BTW."""
        return F.linear(states_BTD, self.matrix(), self.bias)

    def matrix(self) -> Tensor:
        """Return the matrix (W, D) that states are multiplied with."""
        return self.weight

    def loss(self, states: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
        """Return the label-smoothed cross-entropy of labels (…) under states (…, D), summed over them."""
        return label_smoothed_cross_entropy(self(states), labels, smoothing=smoothing, reduction="sum")

    def r_drop_loss(
        self, first: Tensor, second: Tensor, labels: Tensor, *, smoothing: float = 0.0, alpha: float = 1.0
    ) -> Tensor:
        """Return R-Drop's loss of the states of two passes, summed over the labels (…)."""
        return r_drop_loss(self(first), self(second), labels, smoothing=smoothing, alpha=alpha)


class FactorizedOutputProjection(OutputProjection):
    """Logits by two matrices, D→E→W: (h P) Wᵀ + b, which may be those of a factorized embedding."""

    def __init__(
        self,
        vocab_size: int,
        width: int,
        d_model: int,
        *,
        tied_to: FactorizedTokenEmbedding | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__(vocab_size, width, tied_to=None if tied_to is None else tied_to.weight, bias=bias)
        self.projection = _token_matrix(d_model, width, None if tied_to is None else tied_to.projection, d_model)

    def forward(self, states_BTD: Tensor) -> Tensor:
        """Return the logits BTW."""
        return F.linear(states_BTD @ self.projection, self.weight, self.bias)

    def matrix(self) -> Tensor:
        """Return the matrix (W, D) that states are multiplied with."""
        return self.weight @ self.projection.T
