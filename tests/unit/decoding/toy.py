"""A toy language whose best sequences can be found by trying all."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decoding import Finished, Hypothesis, Request, Scheduler, SearchSettings, search

START, END = 0, 1


class Toy:
    """A decoder whose log-probabilities depend on the sentence and on all tokens so far."""

    def __init__(self, sentences: Sequence[int], rows: int, vocabulary: int = 5) -> None:
        self.sentences, self.N, self.W = sentences, rows, vocabulary
        self.live: list[tuple[int, list[tuple[int, ...]]]] = []
        self.fresh = 0

    def admit(self, numbers: Sequence[int]) -> Tensor:
        self.live += [(self.sentences[number], [(START,)] * self.N) for number in numbers]
        self.fresh = len(numbers)
        return torch.stack([logits(self.sentences[number], (START,), self.W) for number in numbers])

    def step(self, tokens_BN: Tensor) -> Tensor:
        self.fresh = 0
        self.live = [
            (sentence, [(*seen, int(token)) for seen, token in zip(rows, tokens, strict=True)])
            for (sentence, rows), tokens in zip(self.live, tokens_BN, strict=True)
        ]
        return torch.stack(
            [torch.stack([logits(sentence, seen, self.W) for seen in rows]) for sentence, rows in self.live]
        )

    def attention(self) -> Tensor:
        """Attend to position t of four in step t, and a little to all."""
        live = [(sentence, rows[:1]) for sentence, rows in self.live[-self.fresh :]] if self.fresh else self.live
        at = [[(len(seen) - 1) % 4 for seen in rows] for _, rows in live]
        return torch.nn.functional.one_hot(torch.tensor(at), 4) * 0.8 + 0.05

    def reorder(self, parents_BN: NDArray[np.int64]) -> None:
        self.live = [
            (sentence, [rows[parent] for parent in parents.tolist()])
            for (sentence, rows), parents in zip(self.live, parents_BN, strict=True)
        ]

    def keep(self, places: Sequence[int]) -> None:
        self.live = [self.live[place] for place in places]


class ReadingToy(Toy):
    """The same, which reads prefixes at once."""

    def prefill(self, numbers: Sequence[int], prefixes: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        self.fresh = len(numbers)
        logs = torch.zeros(len(numbers), dtype=torch.float64)
        seen = [(START, *prefix) for prefix in prefixes]
        sentences = [self.sentences[number] for number in numbers]
        for place, (sentence, tokens) in enumerate(zip(sentences, seen, strict=True)):
            for at in range(1, len(tokens)):
                logs[place] += logits(sentence, tokens[:at], self.W).log_softmax(-1)[tokens[at]]
        self.live += [(sentence, [tokens] * self.N) for sentence, tokens in zip(sentences, seen, strict=True)]
        return torch.stack([logits(*one, self.W) for one in zip(sentences, seen, strict=True)]), logs


def logits(sentence: int, seen: tuple[int, ...], vocabulary: int) -> Tensor:
    generator = torch.Generator().manual_seed(hash((sentence, seen)) % 2**31)
    return torch.randn(vocabulary, generator=generator, dtype=torch.float64).mul(2)


def log_probability(sentence: int, tokens: Sequence[int], vocabulary: int = 5) -> float:
    """log P of a whole sequence, the end counted."""
    total = 0.0
    seen: tuple[int, ...] = (START,)
    for token in (*tokens, END):
        total += float(logits(sentence, seen, vocabulary).log_softmax(-1)[token])
        seen = (*seen, token)
    return total


def run(
    sentences: Sequence[int],
    requests: Sequence[Request],
    settings: SearchSettings,
    *,
    slots: int = 32,
    vocabulary: int = 5,
    reads: bool = False,
) -> list[list[Hypothesis]]:
    """Search for all sentences; the start is never written."""
    decoder = (ReadingToy if reads else Toy)(sentences, settings.rows, vocabulary)
    scheduler = Scheduler(requests, settings, slots=lambda number: slots)
    events = search(decoder, scheduler, settings, start=START, end=END, never=[START])
    found = {event.number: event.hypotheses for event in events if isinstance(event, Finished)}
    return [found[number] for number in range(len(sentences))]


def texts(found: list[Hypothesis]) -> list[list[int]]:
    """Return the tokens of hypotheses, without their scores."""
    return [hypothesis.tokens for hypothesis in found]
