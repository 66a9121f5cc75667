"""Classification: a text to one of several labels, by an encoder."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor

from regard.data import Tokenizer, padded
from regard.data.corpora import Example
from regard.data.tokenizer import END, PAD
from regard.errors import DataError
from regard.model import Transformer
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

    def texts(self, example: Example) -> tuple[str, ...]:
        """Return the text; labels have no tokens."""
        return (self.source(example),)

    def encode(self, examples: Sequence[Example], source: Tokenizer, target: Tokenizer) -> list[TokenPair]:
        """Return the tokens of each text, and the number of its label."""
        number = {label: place for place, label in enumerate(self.labels)}
        for example in examples:
            if self.target(example) not in number:
                raise DataError(f"label {self.target(example)!r} is not one of the task's: {', '.join(self.labels)}")
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
        return self.model_copy(update={"labels": tuple(sorted({self.target(example) for example in examples}))})

    @torch.no_grad()
    def probabilities(self, model: Transformer, texts: Sequence[str], tokenizer: Tokenizer) -> Tensor:
        """Return the probability of each label for each text: (texts, labels)."""
        end, pad = tokenizer.number(END), tokenizer.number(PAD)
        sources = [[*tokens, end] for tokens in tokenizer.encode_batch(texts)]
        found = torch.zeros(len(texts), len(self.labels))
        order = sorted(range(len(texts)), key=lambda row: len(sources[row]))
        for first in range(0, len(order), _BATCH):
            rows = order[first : first + _BATCH]
            source_BS = padded([sources[row] for row in rows], pad).to(model.device)
            found[rows] = model(source_BS).float().softmax(-1).cpu()
        return found

    def predictions(self, model: Transformer, examples: Sequence[Example], tokenizer: Tokenizer) -> list[str]:
        """Return the most probable label of each text."""
        found = self.probabilities(model, [self.source(example) for example in examples], tokenizer)
        return [self.labels[number] for number in found.argmax(1).tolist()]
