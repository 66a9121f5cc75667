"""How good a model is on data that it does not train on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from regard.data.corpora import Corpus, Example
from regard.data.token_store import is_empty, is_oversized
from regard.inference.decode import decode
from regard.model import Transformer
from regard.tasks import Score, score
from regard.tasks.task import Task
from regard.training.examples import Examples
from regard.training.losses import plain_loss
from regard.training.preparation import Sides
from regard.training.recipe import Run


@dataclass(frozen=True)
class ValidationResult:
    """What validation found."""

    loss: float
    """Cross-entropy per target token in nats, labels not smoothed."""
    score: Score | None
    """Of what the model writes, where the run's metric is not the loss."""

    @property
    def perplexity(self) -> float:
        """Perplexity: exp(loss)."""
        try:
            return math.exp(self.loss)
        except OverflowError:
            return math.inf

    @property
    def text(self) -> str:
        """The numbers in a few words: BLEU 31.6  loss 1.87."""
        if self.score is None:
            return f"loss {self.loss:.4f}"
        return f"{self.score.name} {self.score.value:.1f}  loss {self.loss:.2f}"

    def value(self) -> float:
        """The number that decides: the higher, the better."""
        value = -self.loss if self.score is None else self.score.value
        return -math.inf if math.isnan(value) else value


class Validator:
    """Validates models on the same examples each time."""

    def __init__(self, run: Run, corpora: tuple[Corpus, ...], examples: Examples, sides: Sides) -> None:
        self._run, self._corpora, self._examples, self._sides = run, corpora, examples, sides
        self._settings, self._budget = run.validation, run.training.batch_tokens

    @cached_property
    def _read(self) -> list[tuple[Task, list[Example]]]:
        """The examples of each corpus that are encoded, with its task; read where answers are scored."""
        return [(task, _kept(task, corpus)) for corpus in self._corpora for task in (self._run.task_of(corpus),)]

    def validate(self, model: Transformer) -> ValidationResult:
        """Return the loss, and the score of what the model writes if the run's metric is one."""
        metric = self._settings.metric
        written = None if metric == "loss" else self.scores(model, (metric,))[metric]
        return ValidationResult(self._loss(model.eval()), written)

    def scores(self, model: Transformer, metrics: Sequence[str]) -> dict[str, Score]:
        """Score the answers of a model by several metrics."""
        answers, references = self.answers(model.eval()), self._references()
        cut = self._sides.target.kind == "words"
        return {metric: score(metric, answers, references, tokenized=cut) for metric in metrics}

    def scores_by_task(self, model: Transformer, bootstrap: int) -> dict[str, list[Score]]:
        """Score the answers to the examples of each task by all of its metrics, with 95 % intervals by bootstrap."""
        if not any(task.metrics for task in self._run.task):
            return {}
        kinds = [task.kind for task, _ in self._numbered()]
        answers, references = self.answers(model.eval()), self._references()
        cut = self._sides.target.kind == "words"
        found: dict[str, list[Score]] = {}
        for task in self._run.task:
            of_task = [number for number, kind in enumerate(kinds) if kind == task.kind]
            some, expected = [answers[number] for number in of_task], [references[number] for number in of_task]
            if of_task:
                found[task.kind] = [
                    score(metric, some, expected, tokenized=cut, bootstrap=bootstrap) for metric in task.metrics
                ]
        return found

    def answers(self, model: Transformer) -> list[str]:
        """Return the answer of the model for each example."""
        if self._run.shape == "encoder-only":
            return [
                answer
                for task, examples in self._read
                for answer in task.predictions(model, examples, self._sides.source)
            ]
        sources = [self._examples.pair(example)[0] for example in self._examples.numbers.tolist()]
        settings = self._settings
        written = decode(model, sources, beam=settings.beam, length_penalty=settings.length_penalty)
        texts = [self._sides.target.decode(found.tokens) for found in written]
        return [task.answer(text) for (task, _), text in zip(self._numbered(), texts, strict=True)]

    def _references(self) -> list[list[str]]:
        # The texts as they were read: a tokenizer of words would write an unknown one as such.
        readable = self._sides.target.readable
        return [[readable(text) for text in task.references(example)] for task, example in self._numbered()]

    def _numbered(self) -> list[tuple[Task, Example]]:
        """Return the examples in order, each with its task, without those that are too long for the model."""
        every = [(task, example) for task, examples in self._read for example in examples]
        return every if self._run.shape == "encoder-only" else [every[number] for number in self._examples.numbers]

    @torch.no_grad()
    def _loss(self, model: Transformer) -> float:
        total, tokens = 0.0, 0
        for part in self._examples.in_order(self._budget):
            batch = self._examples.batch(part).to(model.device)
            total += float(plain_loss(model, batch))
            tokens += batch.tokens
        return total / tokens


def _kept(task: Task, corpus: Corpus) -> list[Example]:
    """Return the examples of a corpus that are encoded."""
    return [
        example
        for example in corpus.examples(task.fields)
        if not is_empty(task.texts(example)) and not is_oversized(example, task)
    ]
