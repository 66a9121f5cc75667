"""The penalty on repetition: tokens that came before are less likely to come again (Keskar et al., 2019)."""

import numpy as np
import torch
from torch import Tensor

from regard.decoding.beams import Beams


def penalize_repetition(logs_BNW: Tensor, normalizers_BN: Tensor, beams: Beams, start: int) -> None:
    """Make the tokens of each row, and the start of all rows, less likely, in place.

    A positive logit is divided by the penalty, a negative one multiplied. Logits are log-probabilities and their
    normalizers; in beam search log-probabilities themselves count as logits, as in transformers. A prefix costs
    nothing, nor do words that are required and may come next.
    """
    settings = beams.settings
    if not settings.sample and settings.beam > 1:
        normalizers_BN = torch.zeros_like(normalizers_BN)
    came_BNT = torch.from_numpy(_tokens_with_start(beams, start))
    own_BNT = logs_BNW.gather(2, came_BNT)
    logits_BNT = own_BNT + normalizers_BN[:, :, None]
    penalty = settings.repetition_penalty
    penalized_BNT = (
        torch.where(logits_BNT < 0.0, logits_BNT * penalty, logits_BNT / penalty) - normalizers_BN[:, :, None]
    )
    prefixes = [len(sentence.request.prefix) for sentence in beams.sentences]
    within_B = torch.from_numpy(beams.lengths_B < np.array(prefixes))
    penalized_BNT = torch.where(within_B[:, None, None], own_BNT, penalized_BNT)
    free = [
        (place, row, token, float(logs_BNW[place, row, token]))
        for place, sentence in enumerate(beams.sentences)
        if (rules := sentence.request.constraints) is not None and rules.requires
        for row, progress in enumerate(sentence.progress)
        for token in rules.next_tokens(progress).tolist()
    ]
    logs_BNW.scatter_(2, came_BNT, penalized_BNT)
    for place, row, token, log in free:
        logs_BNW[place, row, token] = log


def _tokens_with_start(beams: Beams, start: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return the start and the tokens of each row, with the start again in place of those that are still to come."""
    longest = int(beams.lengths_B.max())
    past_BT = np.arange(longest) < beams.lengths_B[:, None]
    tokens_BNT = np.where(past_BT[:, None], beams.tokens_BNT[:, :, :longest], start)
    return np.pad(tokens_BNT, ((0, 0), (0, 0), (1, 0)), constant_values=start)
