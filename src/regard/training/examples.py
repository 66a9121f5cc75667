"""From encoded corpora to the batches of each step, as a pure function of seed, epoch and position."""

import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from regard.acceleration.subword_dropout import subword_cut
from regard.data import EncodedCorpus, SubwordDropout, draw_examples, padded, plan_batches
from regard.data.batching import Indices
from regard.data.tokenizer import END, PAD, START, Tokenizer
from regard.errors import DataError
from regard.tasks.task import Shape


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

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device; from pinned memory the copy does not wait."""
        if device.type == "cpu":
            return self
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> "Batch":
        """Return the batch in memory that a GPU copies from without waiting; the data loader calls this."""
        return self._mapped(lambda tensor: tensor.pin_memory())

    def _mapped(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        source_BS, target_BT, labels_BT, examples_B = map(
            function, (self.source_BS, self.target_BT, self.labels_BT, self.examples_B)
        )
        return Batch(source_BS, target_BT, labels_BT, examples_B, self.tokens)

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
                source = cuts.source.cut(source, epoch=epoch, example=example)
                target = cuts.target.cut(target, epoch=epoch, example=example)
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
    ) -> None:
        self._examples, self._budget, self._accumulate = examples, budget, accumulate
        self._seed, self._cuts, self._workers, self._pinned = seed, cuts, workers, pinned
        self._planned: tuple[int, list[list[Indices]]] | None = None

    def steps_in(self, epoch: int) -> int:
        """How many steps an epoch has."""
        return len(self._plan(epoch))

    def steps_from(self, position: Position) -> Iterator[tuple[Position, list[Batch]]]:
        """Return the batches of each step to the end of the epoch, with the position after it."""
        plan = self._plan(position.epoch)
        steps = _Steps(self._examples, plan[position.step :], position.epoch, self._cuts)
        # A generator of its own: the loader draws a seed for its workers, and must not draw it from training's.
        loader = DataLoader(
            steps,
            batch_size=None,
            num_workers=self._workers,
            pin_memory=self._pinned,
            generator=torch.Generator(),
            worker_init_fn=_leave_signals_to_the_run,
        )
        for done, batches in enumerate(loader, position.step + 1):
            after = Position(position.epoch, done) if done < len(plan) else Position(position.epoch + 1, 0)
            yield after, batches

    def _plan(self, epoch: int) -> list[list[Indices]]:
        if self._planned is None or self._planned[0] != epoch:
            batches = self._examples.plan(budget=self._budget, seed=self._seed, epoch=epoch)
            if not batches:
                raise DataError(f"epoch {epoch} has no pairs: the weights of its corpora are too small for their sizes")
            every = self._accumulate
            self._planned = epoch, [batches[start : start + every] for start in range(0, len(batches), every)]
        return self._planned[1]


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
