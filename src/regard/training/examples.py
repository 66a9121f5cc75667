"""From encoded corpora to the batches of each step, as a pure function of seed, epoch and position."""

import math
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from regard.acceleration.subword_dropout import subword_cut
from regard.data import EncodedCorpus, SubwordDropout, draw_examples, padded, plan_batches
from regard.data.batching import Indices
from regard.data.tokenizer import END, PAD, START, Tokenizer
from regard.devices import to_device
from regard.errors import DataError
from regard.tasks.task import Shape
from regard.training.curriculum import competence


@dataclass(frozen=True)
class Batch:
    """Examples side by side, padded on the right."""

    source_BS: Tensor
    """The source with its end; a tag, if there is one, before it."""
    target_BT: Tensor
    """What the decoder is given: the start, and the target."""
    labels_BT: Tensor
    """What it should say: the target, and its end. For an encoder alone, what its head should find."""
    examples_B: Tensor
    """The number of each example in the training data."""
    tokens: int
    """How many labels are real: what the loss is divided by."""
    real_places_R: Tensor | None = None
    """The places of the real labels among all of them, in a batch on a device that would have to be waited for."""

    @property
    def real_R(self) -> Tensor:
        """The places of the real labels among all of them, row by row."""
        return self.labels_BT.flatten().nonzero()[:, 0] if self.real_places_R is None else self.real_places_R

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device; from pinned memory the copy does not wait."""
        if device.type == "cpu":
            return self
        return replace(self, real_places_R=self.real_R)._mapped(lambda tensor: to_device(tensor, device))

    def pin_memory(self) -> "Batch":
        """Return the batch in memory that a GPU copies from without waiting; the data loader calls this."""
        return self._mapped(lambda tensor: tensor.pin_memory())

    def _mapped(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        found: dict[str, Any] = {
            name: function(value) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **found)

    def share(self, rank: int, processes: int) -> "Batch":
        """Return the rows of one of several processes, padded as all of them are."""
        if processes == 1:
            return self
        labels = self.labels_BT[rank::processes]
        return Batch(
            self.source_BS[rank::processes],
            self.target_BT[rank::processes],
            labels,
            self.examples_B[rank::processes],
            int((labels != 0).sum()) if self.target_BT.size(1) else len(labels),
        )


@dataclass(frozen=True)
class Position:
    """Where in the data training stands: so many steps of this epoch are done."""

    epoch: int = 0
    step: int = 0


@dataclass(frozen=True)
class Limit:
    """How long a side of a pair may be, its end and tag counted, and what says so."""

    key: str
    tokens: int

    def __str__(self) -> str:
        return f"{self.key} {self.tokens}"


class Examples:
    """Pairs of several corpora under one numbering, with what makes batches of them for models of a shape."""

    def __init__(
        self,
        corpora: Sequence[EncodedCorpus],
        source: Tokenizer,
        target: Tokenizer,
        *,
        tags: Sequence[str | None],
        weights: Sequence[float],
        limit: Limit | None = None,
        shape: Shape = "encoder-decoder",
    ) -> None:
        self._corpora, self.limit, self._shape = corpora, limit, shape
        self._tags = [None if tag is None else source.number(tag) for tag in tags]
        self._weights = weights
        self._firsts = np.cumsum([0, *(len(corpus) for corpus in corpora)])
        self._start, self._end, self._pad = target.number(START), target.number(END), target.number(PAD)
        self._source_end = source.number(END)
        self._lengths = np.concatenate([_padded_lengths(c, t) for c, t in zip(corpora, self._tags, strict=True)])
        self._fitting = None
        if limit is not None and int(self._lengths.max()) > limit.tokens:
            self._fitting = self._lengths <= limit.tokens
        self.empty = sum(corpus.empty for corpus in corpora)
        self.oversized = sum(corpus.oversized for corpus in corpora)
        self.left_out = 0 if self._fitting is None else int((~self._fitting).sum())
        if self.left_out == len(self._lengths):
            raise DataError(f"all {self.left_out:,} pairs are longer than {limit}")

    def __len__(self) -> int:
        return len(self._lengths) - self.left_out

    @property
    def numbers(self) -> Indices:
        """The numbers of the examples that are not left out."""
        return np.arange(len(self._lengths)) if self._fitting is None else np.flatnonzero(self._fitting)

    def plan(self, *, budget: int, seed: int, epoch: int) -> list[Indices]:
        """Return the batches of an epoch, by the numbers of their examples."""
        numbers = draw_examples([len(corpus) for corpus in self._corpora], self._weights, seed=seed, epoch=epoch)
        if self._fitting is not None:
            numbers = numbers[self._fitting[numbers]]
        return plan_batches(numbers, self._lengths, budget=budget, seed=seed, epoch=epoch)

    def longest_of(self, examples: Indices) -> int:
        """Return the length of the longest of some examples: of its longer side, with its end and its tag."""
        return int(self._lengths[examples].max())

    def length_of_share(self, share: float) -> int:
        """Return the length that this share of the examples, the shortest, do not exceed."""
        return int(self._by_length[math.ceil(share * (len(self) - 1))])

    @cached_property
    def _by_length(self) -> NDArray[np.int64]:
        return np.sort(self._lengths[self.numbers])

    def pair(self, example: int) -> tuple[list[int], list[int]]:
        """Return one example: the source with its tag and its end, if there is an encoder, and the bare target."""
        corpus, tag, row = self._located(example)
        before = [] if tag is None else [tag]
        after = [] if self._shape == "decoder-only" else [self._source_end]
        return [*before, *corpus.source[row].tolist(), *after], corpus.target[row].tolist()

    def in_order(self, budget: int) -> list[Indices]:
        """Return batches of all examples, like lengths together: for validation, where order does not matter."""
        return plan_batches(self.numbers, self._lengths, budget=budget, seed=0, epoch=0)

    def batch(self, examples: Indices, *, epoch: int = 0, cuts: "Cuts | None" = None) -> Batch:
        """Collate examples, their words cut anew where there is subword dropout."""
        sources, targets = [], []
        for example in examples.tolist():
            source, target = self.pair(example)
            if cuts is not None:
                cut_anew = cuts.source.cut(source, epoch=epoch, example=example)
                source = cut_anew if self._fits(len(cut_anew)) else source
                cut_anew = cuts.target.cut(target, epoch=epoch, example=example)
                target = cut_anew if self._fits(len(self._framed(cut_anew)) - 1) else target
            sources.append(source)
            targets.append(self._framed(target))
        lines_BT, numbers_B = padded(targets, self._pad), torch.from_numpy(np.ascontiguousarray(examples))
        if self._shape == "encoder-only":
            return Batch(padded(sources, self._pad), lines_BT[:, :0], lines_BT, numbers_B, len(targets))
        return Batch(
            padded(sources, self._pad),
            # The end of the longest is its label alone; of shorter ones it is read too, and what follows is padding.
            lines_BT[:, :-1].contiguous(),
            lines_BT[:, 1:].contiguous(),
            numbers_B,
            sum(len(line) - 1 for line in targets),
        )

    def _fits(self, tokens: int) -> bool:
        """Whether a side of a pair may have so many tokens: cut anew it has more."""
        return self.limit is None or tokens <= self.limit.tokens

    def _framed(self, target: list[int]) -> list[int]:
        """Return a target between start and end; blocks of a text have their own end, and labels have neither."""
        match self._shape:
            case "encoder-decoder":
                return [self._start, *target, self._end]
            case "decoder-only":
                return [self._start, *target]
        return target

    def _located(self, example: int) -> tuple[EncodedCorpus, int | None, int]:
        at = int(np.searchsorted(self._firsts, example, side="right")) - 1
        return self._corpora[at], self._tags[at], example - int(self._firsts[at])


@dataclass(frozen=True)
class Cuts:
    """The subword dropout of both sides."""

    source: SubwordDropout
    target: SubwordDropout

    @classmethod
    def of(cls, source: Tokenizer, target: Tokenizer, rate: float, *, seed: int) -> "Cuts | None":
        """Make them, unless nothing is dropped."""
        if rate == 0.0:
            return None
        # Two streams: the same draws on both sides would tie their cuts together.
        cut = subword_cut()
        return cls(
            SubwordDropout(source, rate, seed=2 * seed, cut=cut),
            SubwordDropout(target, rate, seed=2 * seed + 1, cut=cut),
        )


class StepLoader:
    """Gives the batches of each step from any position on, prepared ahead by workers where there are some."""

    def __init__(
        self,
        examples: Examples,
        *,
        budget: int,
        accumulate: int,
        seed: int,
        cuts: Cuts | None = None,
        workers: int = 0,
        pinned: bool = False,
        curriculum: int = 0,
    ) -> None:
        self._examples, self._budget, self._accumulate = examples, budget, accumulate
        self._seed, self._cuts, self._workers, self._pinned = seed, cuts, workers, pinned
        self._curriculum = curriculum
        self._planned: tuple[int, list[list[Indices]]] | None = None

    def steps_in(self, epoch: int) -> int:
        """How many steps an epoch has."""
        return len(self._plan(epoch))

    def steps_from(self, position: Position, step: int = 0) -> Iterator[tuple[Position, list[Batch]]]:
        """Return the batches of each step to the end of the epoch, with the position after it.

        `step` is how many steps the run has done: batches that are too long for the curriculum so far are passed over.
        """
        plan = self._plan(position.epoch)
        chosen = self._short_enough(plan, position.step, step)
        steps = _Steps(self._examples, [plan[number] for number in chosen], position.epoch, self._cuts)
        # A generator of its own: the loader draws a seed for its workers, and must not draw it from training's.
        loader = DataLoader(
            steps,
            batch_size=None,
            num_workers=self._workers,
            pin_memory=self._pinned,
            generator=torch.Generator(),
            worker_init_fn=_leave_signals_to_the_run,
        )
        for number, batches in zip(chosen, loader, strict=True):
            ended = number == chosen[-1]
            yield Position(position.epoch + 1, 0) if ended else Position(position.epoch, number + 1), batches

    def _short_enough(self, plan: list[list[Indices]], first: int, step: int) -> list[int]:
        """Return which steps of a plan are taken, from the first on; at least one."""
        rest = range(first, len(plan))
        if step >= self._curriculum:
            return list(rest)
        longest = {number: max(self._examples.longest_of(part) for part in plan[number]) for number in rest}
        chosen: list[int] = []
        for number in rest:
            share = competence(step + len(chosen) + 1, self._curriculum)
            if longest[number] <= self._examples.length_of_share(share):
                chosen.append(number)
        return chosen or [min(rest, key=longest.__getitem__)]

    def _plan(self, epoch: int) -> list[list[Indices]]:
        if self._planned is None or self._planned[0] != epoch:
            batches = self._examples.plan(budget=self._budget, seed=self._seed, epoch=epoch)
            if not batches:
                raise DataError(f"epoch {epoch} has no pairs: the weights of its corpora are too small for their sizes")
            self._planned = epoch, self._grouped(batches, epoch)
        return self._planned[1]

    def _grouped(self, batches: list[Indices], epoch: int) -> list[list[Indices]]:
        """Return the batches of each step; with a curriculum, which goes by the longest, like lengths together."""
        every = self._accumulate
        if every == 1 or not self._curriculum:
            return [batches[start : start + every] for start in range(0, len(batches), every)]
        by_length = sorted(batches, key=self._examples.longest_of)
        groups = [by_length[start : start + every] for start in range(0, len(batches), every)]
        return [groups[number] for number in np.random.default_rng([self._seed, epoch]).permutation(len(groups))]


def _leave_signals_to_the_run(_: int) -> None:
    # They may be sent to all processes of a group; the run then still needs its batches to come to a good end.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


class _Steps(Dataset[list[Batch]]):
    def __init__(self, examples: Examples, plan: list[list[Indices]], epoch: int, cuts: Cuts | None) -> None:
        self._examples, self._plan, self._epoch, self._cuts = examples, plan, epoch, cuts

    def __len__(self) -> int:
        return len(self._plan)

    def __getitem__(self, step: int) -> list[Batch]:
        return [self._examples.batch(part, epoch=self._epoch, cuts=self._cuts) for part in self._plan[step]]


def _padded_lengths(corpus: EncodedCorpus, tag: int | None) -> NDArray[np.int64]:
    """The longer side of each pair, with its end and its tag."""
    return np.maximum(corpus.source.lengths + (tag is not None), corpus.target.lengths) + 1
