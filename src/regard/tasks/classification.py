"""Classification: a text to one of several labels, by an encoder."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, overload

import torch
from torch import Tensor

from regard.data import Tokenizer, padded
from regard.data.corpora import Example
from regard.data.tokenizer import END, PAD
from regard.errors import DataError, InputError, ModelError
from regard.inference.pipeline import Pipeline
from regard.inference.texts import checked_texts
from regard.model import Transformer
from regard.notebook import ranking_html
from regard.tasks.task import Task, TokenPair

_BATCH = 32  # texts that are read together


class ClassificationTask(Task):
    """Texts with labels: fields `text` and `label`. The model is an encoder with a head over the labels."""

    kind: Literal["classification"] = "classification"
    labels: tuple[str, ...] = ()
    """The labels in their order; those of the training data, sorted, unless given."""
    pooling: Literal["mean", "first"] = "mean"
    """What represents a text: the mean of its states, or the first of them."""

    shape = "encoder-only"
    fields = ("text", "label")
    metrics = ("accuracy", "macro_f1")

    def check(self) -> None:
        """Raise an `InputError` where fields do not fit together."""
        if len(self.labels) == 1:
            raise InputError(f"labels has {self.labels[0]!r} alone; there are at least two to choose from")
        for label in self.labels:
            if self.labels.count(label) > 1:
                raise InputError(f"labels has {label!r} twice")

    def check_example(self, example: Example) -> None:
        """Raise a `DataError` for a label that is not one of the task's."""
        if self.target(example) not in self.labels:
            raise DataError(f"label {self.target(example)!r} is not one of the task's: {', '.join(self.labels)}")

    def texts(self, example: Example) -> tuple[str, ...]:
        """Return the text; labels have no tokens."""
        return (self.source(example),)

    def encode(self, examples: Sequence[Example], source: Tokenizer, target: Tokenizer) -> list[TokenPair]:
        """Return the tokens of each text, and the number of its label."""
        for example in examples:
            self.check_example(example)
        number = {label: place for place, label in enumerate(self.labels)}
        sources = source.encode_batch([self.source(example) for example in examples])
        return [(tokens, [number[self.target(example)]]) for tokens, example in zip(sources, examples, strict=True)]

    def model_fields_for(self) -> dict[str, Any]:
        """Return an encoder alone, with a head over the labels."""
        head = {"kind": "classification", "labels": max(2, len(self.labels)), "pooling": self.pooling}
        return {"decoder_layers": 0, "head": head}

    def learned_from(self, examples: Iterable[Example]) -> Self:
        """Return the task with the labels of its training data."""
        if self.labels:
            return self
        labels = sorted({self.target(example) for example in examples})
        if len(labels) < 2 or not labels[0].strip():
            found = ", ".join(map(repr, labels)) or "none"
            raise DataError(
                f"the labels of the training data are {found}; two at least were expected, none of them empty"
            )
        return self.model_copy(update={"labels": tuple(labels)})

    def probabilities(self, model: Transformer, texts: Sequence[str], tokenizer: Tokenizer) -> Tensor:
        """Return the probability of each label for each text: (texts, labels)."""
        return self.logits(model, texts, tokenizer).softmax(-1)

    @torch.no_grad()
    def logits(self, model: Transformer, texts: Sequence[str], tokenizer: Tokenizer) -> Tensor:
        """Return the logit of each label for each text: (texts, labels)."""
        end, pad = tokenizer.number(END), tokenizer.number(PAD)
        sources = [[*tokens, end] for tokens in tokenizer.encode_batch(texts)]
        found = torch.zeros(len(texts), len(self.labels))
        order = sorted(range(len(texts)), key=lambda row: len(sources[row]))
        for first in range(0, len(order), _BATCH):
            rows = order[first : first + _BATCH]
            source_BS = padded([sources[row] for row in rows], pad).to(model.device)
            found[rows] = model(source_BS).float().cpu()
        return found

    def predictions(self, model: Transformer, examples: Sequence[Example], tokenizer: Tokenizer) -> list[str]:
        """Return the most probable label of each text."""
        found = self.probabilities(model, [self.source(example) for example in examples], tokenizer)
        return [self.labels[number] for number in found.argmax(1).tolist()]


@dataclass(frozen=True, repr=False)
class Classification:
    """The labels of a text with their probabilities. `str()` of it is the most probable label."""

    probabilities: dict[str, float]
    """Of all labels, the most probable first."""
    alternatives: tuple["Classification", ...] = ()

    @property
    def label(self) -> str:
        """The most probable label."""
        return next(iter(self.probabilities))

    @property
    def text(self) -> str:
        """The most probable label."""
        return self.label

    @property
    def score(self) -> float:
        """The probability of the most probable label."""
        return self.probabilities[self.label]

    def __str__(self) -> str:
        return self.label

    def __repr__(self) -> str:
        return f"Classification({self.label!r}, score={self.score:.4f})"

    def _repr_html_(self) -> str:
        return ranking_html(list(self.probabilities.items()))

    def content(self) -> dict[str, Any]:
        """Return all that is known of it, for JSON."""
        rounded = {label: round(probability, 6) for label, probability in self.probabilities.items()}
        return {"label": self.label, "score": round(self.score, 6), "probabilities": rounded}

    def warnings(self) -> Iterator[str]:
        """Return what may be wrong with it: nothing."""
        return iter(())


class Classifier(Pipeline):
    """A model ready to classify texts."""

    kind: ClassVar[str] = "classification"
    verb: ClassVar[str] = "classify"
    shape = "encoder-only"

    @property
    def task(self) -> ClassificationTask:
        """The task, with its labels."""
        if not isinstance(self._task, ClassificationTask):
            raise ModelError("a classifier needs the task with its labels, as the model's directory has it")
        return self._task

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in their order."""
        return self.task.labels

    @overload
    def classify(self, texts: str) -> Classification: ...  # type: ignore[overload-overlap]
    @overload
    def classify(self, texts: Sequence[str]) -> list[Classification]: ...
    def classify(self, texts: str | Sequence[str]) -> Classification | list[Classification]:
        """Return the labels of a text, or of several at once, with their probabilities."""
        lines = checked_texts(texts, "texts")
        found = []
        for row in self.task.probabilities(self.model.eval(), lines, self.source).tolist():
            found.append(Classification(dict(sorted(zip(self.labels, row, strict=True), key=lambda pair: -pair[1]))))
        return found[0] if isinstance(texts, str) else found

    def predictions(self, examples: Sequence[Example]) -> list[str]:
        """Return the labels of examples, as metrics compare them."""
        return self.task.predictions(self.model.eval(), examples, self.source)
