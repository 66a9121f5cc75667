"""Logits processors: tokens that may not come next."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.decoding.beams import DEAD, Beams, Sentence
from regard.decoding.constraints import Constraints
from regard.decoding.phrases import UNREACHABLE
from regard.decoding.settings import Request, SearchSettings
from regard.errors import InputError


class LogitsProcessors:
    """Bans on tokens. They are made after the model's probabilities, so that scores stay the model's own."""

    def __init__(self, settings: SearchSettings, end: int, never: Sequence[int]) -> None:
        self._settings, self._end = settings, end
        self._never = torch.tensor(sorted({*never} - {end}), dtype=torch.int64)

    def apply(self, logs_BNW: Tensor, beams: Beams) -> None:
        """Set the log-probabilities of what may not come to -∞, in place."""
        if len(self._never):
            logs_BNW.index_fill_(2, self._never, -torch.inf)
        if self._settings.min_length:
            early = np.flatnonzero(beams.lengths_B < self._settings.min_length)
            logs_BNW[early, :, self._end] = -torch.inf
        full_B = beams.lengths_B >= beams.limits_B
        if full_B.any():
            for place in np.flatnonzero(full_B).tolist():
                _leave_only(logs_BNW[place], self._end)
        for place, sentence in enumerate(beams.sentences):
            prefix = sentence.request.prefix
            if prefix and beams.lengths_B[place] < len(prefix):
                _leave_only(logs_BNW[place], prefix[beams.lengths_B[place]])
            elif sentence.request.constraints is not None:
                self._apply_constraints(logs_BNW[place], sentence, sentence.request.constraints)
        if self._settings.no_repeat:
            self._ban_repeats(logs_BNW, beams)

    def _apply_constraints(self, logs_NW: Tensor, sentence: Sentence, rules: Constraints) -> None:
        # A forbidden word may come as the beginning of a longer one: where other rows go on beside it, and only if the
        # model itself then goes on with the word.
        alone = self._settings.sample or self._settings.rows == self._settings.groups
        for row, progress in enumerate(sentence.progress):
            step, best = rules.step(progress), int(logs_NW[row].argmax())
            banned_W, helps_W = step.distances_W >= UNREACHABLE, step.distances_W < rules.distance(progress)
            if rules.distance(progress) > 0:
                if best == self._end:
                    sentence.held_open.add(row)
                banned_W[self._end] = True
            if row in sentence.held_open and not torch.isneginf(logs_NW[row, self._end]):
                # The model has come to its end. What is required may still come; nothing else makes it longer.
                banned_W = ~helps_W
                banned_W[self._end] = rules.distance(progress) > 0
            if alone:
                banned_W |= step.hanging_W & ~helps_W
            elif rules.is_hanging(progress) and banned_W[best]:
                banned_W[:] = True
            logs_NW[row].masked_fill_(torch.from_numpy(banned_W), -torch.inf)

    def _ban_repeats(self, logs_BNW: Tensor, beams: Beams) -> None:
        size = self._settings.no_repeat
        for place, sentence in enumerate(beams.sentences):
            length = int(beams.lengths_B[place])
            if length < max(size - 1, len(sentence.request.prefix)):
                continue
            for row in np.flatnonzero(beams.scores_BN[place] != DEAD).tolist():
                tokens = beams.tokens_BNT[place, row, :length].tolist()
                beginning = tokens[length - size + 1 :]
                starts = range(length - size + 1)
                repeated = {tokens[at + size - 1] for at in starts if tokens[at : at + size - 1] == beginning}
                if (rules := sentence.request.constraints) is not None:  # what is required may come again
                    repeated -= set(rules.next_tokens(sentence.progress[row]).tolist())
                before_W = logs_BNW[place, row].clone()
                logs_BNW[place, row, list(repeated)] = -torch.inf
                if bool(logs_BNW[place, row].amax() == -torch.inf):  # better a repetition than nothing at all
                    logs_BNW[place, row] = before_W


def check_request(request: Request, settings: SearchSettings) -> None:
    """Raise an `InputError` for what no hypothesis could meet."""
    if request.limit < max(len(request.prefix), settings.min_length):
        raise InputError(
            f"a limit of {request.limit} tokens leaves no room for a prefix of {len(request.prefix)} "
            f"and a least length of {settings.min_length}"
        )
    rules = request.constraints
    if rules is None:
        return
    progress = rules.start
    for token in request.prefix:
        after = rules.after(progress, token)
        if after is None:
            raise InputError("what the sentence must start with has a forbidden word in it")
        progress = after
    if request.prefix and rules.is_hanging(progress):
        raise InputError("what the sentence must start with has a forbidden word in it")
    needed = rules.distance(progress)
    if needed >= UNREACHABLE:
        raise InputError("the required words cannot come without a forbidden one")
    if len(request.prefix) + needed > request.limit:
        raise InputError(
            f"what is required takes {len(request.prefix) + needed} tokens; there is room for {request.limit}"
        )


def _leave_only(logs_NW: Tensor, token: int) -> None:
    kept_N = logs_NW[:, token].clone()
    logs_NW.fill_(-torch.inf)
    logs_NW[:, token] = kept_N
