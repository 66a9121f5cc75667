"""What may not come next, whatever the model says."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.errors import InputError
from regard.search.beams import DEAD, Beams, Sentence
from regard.search.constraints import NEVER, Constraints
from regard.search.settings import Request, SearchSettings


class Rules:
    """Bans on tokens. They are made after the model's probabilities, so that scores stay the model's own."""

    def __init__(self, settings: SearchSettings, end: int, never: Sequence[int], joining_W: Tensor | None) -> None:
        self._settings, self._end, self._joining_W = settings, end, joining_W
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
            elif sentence.constraints is not None:
                self._apply_constraints(logs_BNW[place], sentence, sentence.constraints)
        if self._settings.no_repeat:
            self._ban_repeats(logs_BNW, beams)

    def _apply_constraints(self, logs_NW: Tensor, sentence: Sentence, rules: Constraints) -> None:
        for row, progress in enumerate(sentence.progress):
            logs_NW[row, rules.banned(progress)] = -torch.inf
            if rules.distance(progress) > 0:
                logs_NW[row, self._end] = -torch.inf
            if self._joining_W is not None and row in sentence.just_met:
                # The word that was required would become a part of a longer one.
                logs_NW[row].masked_fill_(self._joining_W, -torch.inf)

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
                if sentence.constraints is not None:  # what is required may come again
                    repeated -= set(sentence.constraints.next_tokens(sentence.progress[row]))
                before_W = logs_BNW[place, row].clone()
                logs_BNW[place, row, list(repeated)] = -torch.inf
                if bool(logs_BNW[place, row].amax() == -torch.inf):  # better a repetition than nothing at all
                    logs_BNW[place, row] = before_W


def constraints_of(request: Request, settings: SearchSettings, end: int) -> Constraints | None:
    """Give the automaton of a request's constraints, or refuse what no sentence could meet."""
    if request.limit < max(len(request.prefix), settings.min_length):
        raise InputError(
            f"a limit of {request.limit} tokens leaves no room for a prefix of {len(request.prefix)} "
            f"and a least length of {settings.min_length}"
        )
    if not request.required and not request.forbidden:
        return None
    if any(not phrase or end in phrase for phrase in (*request.required, *request.forbidden)):
        raise InputError("a constraint is empty, or has the end of a sentence in it")
    rules = Constraints(request.required, request.forbidden)
    progress = rules.start
    for token in request.prefix:
        after = rules.after(progress, token)
        if after is None:
            raise InputError("what the sentence must start with has a forbidden word in it")
        progress = after
    needed = rules.distance(progress)
    if needed >= NEVER:
        raise InputError("the required words cannot come without a forbidden one")
    if len(request.prefix) + needed > request.limit:
        raise InputError(
            f"what is required takes {len(request.prefix) + needed} tokens; there is room for {request.limit}"
        )
    return rules


def _leave_only(logs_NW: Tensor, token: int) -> None:
    kept_N = logs_NW[:, token].clone()
    logs_NW.fill_(-torch.inf)
    logs_NW[:, token] = kept_N
