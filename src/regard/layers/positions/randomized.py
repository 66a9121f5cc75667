"""Randomized positions in training, by which a model meets positions beyond its longest example (Ruoss et al. 2023)."""

import torch
from torch import Tensor

from regard.devices import widest_float
from regard.errors import InputError
from regard.layers.positions.absolute import TokenPositions
from regard.ops.rng import random_words, stream_starts


def random_positions(tokens_BT: Tensor, pad_id: int, end: int) -> TokenPositions:
    """Return for each sequence a random subset of the positions below `end`, in order.

    It is a subset of a span that may be as short as the sequence, for positions follow one another when a model is
    used, and as long as `end`: its length is log-uniform, its place uniform. Ruoss et al. choose from all positions, so
    that neighbors are nearly always apart; a decoder, which does not know how much it will write, has them together.

    The generator is that of dropout: what a sequence gets follows from its key, where there are keys
    (`regard.ops.rng`), and from its length without the padding on its right; else from torch's own generator.

    >>> from regard.ops.rng import keyed_dropout
    >>> with keyed_dropout(torch.tensor([1])):
    ...     random_positions(torch.tensor([[7, 8, 9]]), pad_id=0, end=100).positions
    tensor([[26, 33, 71]])
    """
    B, T = tokens_BT.shape
    if end < T:
        raise InputError(f"a sequence of {T} positions is longer than random_positions, {end}")
    starts_R = stream_starts(tokens_BT)
    words = random_words(starts_R, B * (end + 2) // max(starts_R.size(0), 1)).view(B, end + 2)
    padding_BT = tokens_BT.ne(pad_id).flip(1).cumsum(1).flip(1) == 0
    length_B = (~padding_BT).sum(1).clamp(min=1).to(widest_float(tokens_BT.device))
    span_B = (length_B * (end / length_B) ** _uniform(words[:, end])).ceil().clamp(max=end)
    first_B = (_uniform(words[:, end + 1]) * (end - span_B + 1)).floor()
    place_E = torch.arange(end, device=tokens_BT.device)
    outside_BE = (place_E < first_B[:, None]) | (place_E >= (first_B + span_B)[:, None])
    chosen_BT = words[:, :end].masked_fill(outside_BE, torch.iinfo(words.dtype).max).argsort(dim=1)[:, :T]
    # Padding comes last whatever was drawn for it, so that real tokens have the same positions with and without it.
    sorted_BT = chosen_BT.masked_fill(padding_BT, end).sort(dim=1).values
    return TokenPositions(sorted_BT.clamp(max=end - 1), end)


def _uniform(words: Tensor) -> Tensor:
    """Return numbers from [0, 1) of random words, by their upper 53 bits."""
    return (words >> 11).bitwise_and((1 << 53) - 1).to(widest_float(words.device)) * 2.0**-53
