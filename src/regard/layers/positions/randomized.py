"""Randomized positions in training, by which a model meets positions beyond its longest example (Ruoss et al. 2023)."""

from torch import Tensor

from regard.errors import InputError
from regard.layers.positions.absolute import TokenPositions
from regard.ops.rng import random_words, stream_starts


def random_positions(tokens_BT: Tensor, pad_id: int, end: int) -> TokenPositions:
    """Return for each sequence a random subset of the positions below `end`, in order.

    The generator is that of dropout: what a sequence gets follows from its key, where there are keys
    (`regard.ops.rng`), and from its length without the padding on its right; else from torch's own generator.

    >>> import torch
    >>> from regard.ops.rng import keyed_dropout
    >>> with keyed_dropout(torch.tensor([1])):
    ...     random_positions(torch.tensor([[7, 8, 9]]), pad_id=0, end=100).positions
    tensor([[26, 71, 93]])
    """
    B, T = tokens_BT.shape
    if end < T:
        raise InputError(f"a sequence of {T} positions is longer than random_positions, {end}")
    starts_R = stream_starts(tokens_BT)
    words_BE = random_words(starts_R, B * end // max(starts_R.size(0), 1)).view(B, end)
    chosen_BT = words_BE.argsort(dim=1)[:, :T]
    padding_BT = tokens_BT.ne(pad_id).flip(1).cumsum(1).flip(1) == 0
    # Padding comes last whatever was drawn for it, so that real tokens have the same positions with and without it.
    sorted_BT = chosen_BT.masked_fill(padding_BT, end).sort(dim=1).values
    return TokenPositions(sorted_BT.clamp(max=end - 1), end)
