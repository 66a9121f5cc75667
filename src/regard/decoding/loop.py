"""The search itself: sentences come in, their rows go on step by step, and leave as soon as they are finished."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from regard.decoding.beam_step import choose_at_random, choose_by_beam
from regard.decoding.beams import DEAD, Beams, Ints, TextOf
from regard.decoding.candidates import CandidateSelector, TorchSelector
from regard.decoding.logits_processors import LogitsProcessors
from regard.decoding.repetition import penalize_repetition
from regard.decoding.scheduler import Scheduler
from regard.decoding.settings import Hypothesis, SearchSettings
from regard.errors import ModelError


@dataclass(frozen=True)
class StreamedTokens:
    """The next tokens of a sentence, which nothing can change any more."""

    number: int
    tokens: list[int]


@dataclass(frozen=True)
class Finished:
    """What was found for a sentence, best first."""

    number: int
    hypotheses: list[Hypothesis]


Event = StreamedTokens | Finished


class Decoder(Protocol):
    """Interface of a decoder that holds B sentences of N independent rows."""

    def admit(self, numbers: Sequence[int]) -> Tensor:
        """Admit sentences, behind those that are there; return the logits (B, W) of the first token of these."""

    def step(self, tokens_BN: Tensor) -> Tensor:
        """Take the next token of each row in; give the logits (B, N, W) of the one after it."""

    def attention(self) -> Tensor:
        """Return the last step's attention to the source, (B, N, S); if it admitted sentences, (B, 1, S) of these."""

    def reorder(self, parents_BN: Ints) -> None:
        """Continue each row from another row of its sentence."""

    def keep(self, places: Sequence[int]) -> None:
        """Keep the sentences at these places; each stays where it is, or comes from behind all that are kept."""


@runtime_checkable
class PrefixReader(Decoder, Protocol):
    """A decoder that reads a prefix in one forward pass; others are forced to write it token by token."""

    def prefill(self, numbers: Sequence[int], prefixes: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Admit sentences, each with what it starts with.

        Return the logits (B, W) of the first token after that, and the log-probabilities (B) of the prefixes.
        """


def search(
    decoder: Decoder,
    scheduler: Scheduler,
    settings: SearchSettings,
    *,
    start: int,
    end: int,
    never: Sequence[int] = (),
    text_of: TextOf | None = None,
    selector: CandidateSelector | None = None,
    stream: bool = False,
) -> Iterator[Event]:
    """Return the best hypotheses of each request as soon as they are there; with `stream`, tokens as they settle.

    `start` is the token before the first one, `never` are tokens that may not come; with `text_of`, hypotheses that
    spell the same count once.
    """
    selector = TorchSelector() if selector is None else selector
    logits_processors = LogitsProcessors(settings, end, never)
    beams = Beams(settings, [], text_of)
    while (coming := scheduler.take(beams.sentences)) or beams.sentences:
        if scheduler.closed:
            return
        if coming:
            fresh = Beams(settings, coming, text_of)
            logits_BW = _admit(decoder, fresh)
            # All rows of a sentence have the same past so far, and so the same logits.
            logs_BNW, own_BNW = _log_probabilities(logits_BW[:, None], fresh, start, selector)
            _advance(fresh, logs_BNW, own_BNW, decoder, logits_processors, end, selector)
            beams.join(fresh)
        else:
            logits_BNW = decoder.step(torch.from_numpy(beams.last_BN))
            logs_BNW, own_BNW = _log_probabilities(logits_BNW, beams, start, selector)
            parents_BN = _advance(beams, logs_BNW, own_BNW, decoder, logits_processors, end, selector)
            if settings.rows > 1 and not settings.sample:
                decoder.reorder(parents_BN)
        if stream:
            yield from _settled(beams)
        yield from _let_go(decoder, beams)


def _admit(decoder: Decoder, fresh: Beams) -> Tensor:
    """Let sentences into the decoder, with their prefixes where it reads them; return the logits (B, W) that follow."""
    numbers = [sentence.number for sentence in fresh.sentences]
    prefixes = [sentence.request.prefix for sentence in fresh.sentences]
    # Coverage adds up what each token attends to, those of the prefix too.
    if not any(prefixes) or fresh.settings.coverage_penalty or not isinstance(decoder, PrefixReader):
        return decoder.admit(numbers)
    logits_BW, logs_B = decoder.prefill(numbers, prefixes)
    fresh.start_after_prefixes(logs_B.double().numpy())
    return logits_BW


def _log_probabilities(
    logits_BNW: Tensor, beams: Beams, start: int, selector: CandidateSelector
) -> tuple[Tensor, Tensor | None]:
    """Return log-probabilities to choose by, and the model's own where these are others."""
    rows = beams.settings.rows
    if beams.settings.repetition_penalty == 1.0:
        logs_BNW = selector.log_probabilities(logits_BNW)
        return logs_BNW if logs_BNW.size(1) == rows else logs_BNW.repeat(1, rows, 1), None
    highest_BN = logits_BNW.amax(-1)
    own_BNW = selector.log_probabilities(logits_BNW)
    normalizers_BN = highest_BN - own_BNW.amax(-1)
    logs_BNW, own_BNW = own_BNW.expand(-1, rows, -1).clone(), own_BNW.expand(-1, rows, -1)
    penalize_repetition(logs_BNW, normalizers_BN.expand(-1, rows), beams, start)
    return logs_BNW, own_BNW


def _advance(
    beams: Beams,
    logs_BNW: Tensor,
    own_BNW: Tensor | None,
    decoder: Decoder,
    logits_processors: LogitsProcessors,
    end: int,
    selector: CandidateSelector,
) -> Ints:
    """Continue all rows by a word; return the row that each goes on from."""
    if beams.settings.coverage_penalty:
        attention_BNS = decoder.attention().double()
        beams.cover(attention_BNS.expand(-1, beams.settings.rows, -1).numpy())
    if math.isnan(logs_BNW[:, :, end].sum()):  # one of a row is not a number, if any of it is not
        raise ModelError("the model's log-probabilities are not numbers; its weights have diverged")
    logits_processors.apply(logs_BNW, beams)
    if own_BNW is not None:
        beams.own_ends_BN = own_BNW[:, :, end].double().numpy()
    if beams.settings.sample:
        choice = choose_at_random(beams, logs_BNW, end)
    else:
        choice = choose_by_beam(beams, logs_BNW, end, selector)
    if own_BNW is not None and beams.own_BN is not None:
        at_B1 = np.arange(len(beams.sentences))[:, None]
        own_BN = own_BNW[at_B1, choice.parents_BN, choice.words_BN].double().numpy()
        beams.own_BN = beams.own_BN[at_B1, choice.parents_BN] + own_BN
    beams.grow(choice.parents_BN, choice.words_BN, choice.scores_BN)
    return choice.parents_BN


def _let_go(decoder: Decoder, beams: Beams) -> Iterator[Finished]:
    """Return the sentences that are finished; the last ones take their places."""
    done = beams.close_groups()
    if not done:
        return
    found = [Finished(beams.sentences[place].number, beams.result(place)) for place in done]
    places = places_left(len(beams.sentences), done)
    decoder.keep(places)
    beams.keep(places)
    yield from found


def places_left(count: int, done: Sequence[int]) -> list[int]:
    """Return which of so many sentences are kept once some have gone: the last ones come into the holes of these.

    >>> places_left(6, [1, 4])
    [0, 5, 2, 3]
    """
    kept = count - len(done)
    places = list(range(kept))
    holes = [place for place in done if place < kept]
    for hole, moved in zip(holes, sorted({*range(kept, count)}.difference(done)), strict=True):
        places[hole] = moved
    return places


def _settled(beams: Beams) -> Iterator[StreamedTokens]:
    """Return the tokens that all hypotheses of a sentence that could still win agree on."""
    for place, sentence in enumerate(beams.sentences):
        length = int(beams.lengths_B[place])
        rows = np.flatnonzero(beams.scores_BN[place] != DEAD)
        lines = [beams.tokens_BNT[place, row, :length].tolist() for row in rows]
        lines += [hypothesis.tokens for group in sentence.finished for hypothesis in group]
        settled = _common_beginning(lines) if lines else []
        if len(settled) > sentence.told:
            yield StreamedTokens(sentence.number, settled[sentence.told :])
            sentence.told = len(settled)


def _common_beginning(lines: list[list[int]]) -> list[int]:
    shortest, longest = min(lines), max(lines)
    for at, token in enumerate(shortest):
        if token != longest[at]:
            return shortest[:at]
    return shortest
