"""How good a model is on data that it does not train on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.data import Tokenizer
from regard.data.corpora import Corpus
from regard.data.token_store import is_empty, is_oversized
from regard.inference.decode import decode
from regard.model import Transformer
from regard.tasks import Score, score
from regard.tasks.metrics import MetricName
from regard.training.examples import Examples
from regard.training.recipe import Validation


@dataclass(frozen=True)
class ValidationResult:
    """What validation found."""

    loss: float
    """Cross-entropy per target token in nats, labels not smoothed."""
    score: Score | None
    """Of what the model writes, where the run's metric is not the loss."""

    @property
    def perplexity(self) -> float:
        """e^loss: among how many words the model is in doubt."""
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

    def __init__(
        self, settings: Validation, examples: Examples, corpora: tuple[Corpus, ...], target: Tokenizer, *, budget: int
    ) -> None:
        self._settings, self._examples, self._target, self._budget = settings, examples, target, budget
        self._references: list[str] = []
        if settings.metric != "loss":
            # The texts as they were read: a tokenizer of words would write an unknown one as such.
            pairs = (pair for corpus in corpora for pair in corpus.pairs())
            kept = (pair for pair in pairs if not is_empty(pair) and not is_oversized(pair))
            texts = [target.readable(text) for _, text in kept]
            self._references = [texts[example] for example in examples.numbers]

    def validate(self, model: Transformer) -> ValidationResult:
        """Return the loss, and the score of what the model writes if the run's metric is one."""
        metric = self._settings.metric
        written = None if metric == "loss" else self.scores(model, (metric,))[metric]
        return ValidationResult(self._loss(model.eval()), written)

    def scores(self, model: Transformer, metrics: Sequence[MetricName]) -> dict[str, Score]:
        """Score what the model writes by several metrics."""
        texts = self.write(model.eval())
        cut = self._target.kind == "words"
        return {metric: score(metric, texts, self._references, tokenized=cut) for metric in metrics}

    def write(self, model: Transformer) -> list[str]:
        """Return what the model writes for each source."""
        sources = [self._examples.pair(example)[0] for example in self._examples.numbers.tolist()]
        settings = self._settings
        written = decode(model, sources, beam=settings.beam, length_penalty=settings.length_penalty)
        return [self._target.decode(found.tokens) for found in written]

    @torch.no_grad()
    def _loss(self, model: Transformer) -> float:
        total, tokens = 0.0, 0
        for part in self._examples.in_order(self._budget):
            batch = self._examples.batch(part).to(model.device)
            real_BT = batch.labels_BT != model.config.pad_id
            memory = None if model.encoder is None else model.encode(batch.source_BS)
            states_BTD = model.decode(batch.target_BT, memory)
            total += float(model.output.loss(states_BTD[real_BT], batch.labels_BT[real_BT], smoothing=0.0))
            tokens += batch.tokens
        return total / tokens
