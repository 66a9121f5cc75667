"""What a task is: how an example becomes source and target, how what is written becomes an answer, what scores it."""

import inspect
import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from regard.configs import Config
from regard.data import Tokenizer
from regard.data.corpora import Example
from regard.data.sentences import with_plain_spaces
from regard.errors import InputError
from regard.model import Transformer

Shape = Literal["encoder-decoder", "encoder-only", "decoder-only"]
TokenPair = tuple[list[int], list[int]]
"""The token numbers of a source and of its target, without tags, starts and ends."""


class Task(Config):
    """A kind of work for a model. Its fields are the settings that a run file gives, and a model directory keeps.

    As it stands it is for pairs of texts. A subclass names the fields of its examples, and says what of them the model
    reads and what it writes; unless it does, those are the first field and the last.

    >>> import regard
    >>> class Comparison(regard.tasks.Task):
    ...     kind: str = "comparison"
    ...     fields = ("first", "second", "difference")
    ...     metrics = ("rougeL", "bleu")
    ...
    ...     def source(self, example):
    ...         return f"{example['first']} / {example['second']}"
    >>> example = {"first": "a red door", "second": "a green door", "difference": "the color"}
    >>> Comparison().source(example), Comparison().target(example)
    ('a red door / a green door', 'the color')

    `regard.train(run, out, task=Comparison())` trains a model for it, `regard.load(out, task=Comparison())` loads one.
    """

    kind: str
    """Its name, in run files and in model directories."""
    tag: Annotated[str, Field(min_length=1)] | None = None
    """A special token before each source: in a model of several tasks `<summarization>` and so on, unless given.

    Translation has the tags of its corpora, one for each language.
    """

    shape: ClassVar[Shape] = "encoder-decoder"
    """Which stacks its models have."""
    fields: ClassVar[tuple[str, ...]] = ("source", "target")
    """The fields of an example."""
    metrics: ClassVar[tuple[str, ...]] = ("bleu", "chrf", "exact")
    """What scores its answers, the most usual first."""

    reads_plain_spaces: ClassVar[bool] = False
    """Whether line breaks and white space of any kind are single spaces to the model, in training and in use."""

    def source(self, example: Example) -> str:
        """Return the text that the model reads."""
        return str(example[self.fields[0]])

    def spaced(self, text: str) -> str:
        """Return a source with its spaces as the model reads them."""
        return with_plain_spaces(text) if self.reads_plain_spaces else text

    def target(self, example: Example) -> str:
        """Return the text that the model learns to write."""
        return str(example[self.fields[-1]])

    @property
    def longest_part(self) -> int:
        """How many tokens the parts have that the task cuts its examples into, ends counted; 0 if it cuts none."""
        return 0

    def check_example(self, example: Example) -> None:
        """Raise a `DataError` for an example that the task cannot have, beyond a missing field."""

    def references(self, example: Example) -> list[str]:
        """Return the answers that count as right."""
        return [self.target(example)]

    def answer(self, text: str) -> str:
        """Return the answer that a text of the model's stands for."""
        return text

    def texts(self, example: Example) -> tuple[str, ...]:
        """Return the texts that tokenizers learn from, source and target; an example that lacks one is left out."""
        return self.spaced(self.source(example)), self.target(example)

    def encode(self, examples: Sequence[Example], source: Tokenizer, target: Tokenizer) -> list[TokenPair]:
        """Return the token numbers of examples. One example may give several pairs."""
        sources = source.encode_batch([self.spaced(self.source(example)) for example in examples])
        targets = target.encode_batch([self.target(example) for example in examples])
        return list(zip(sources, targets, strict=True))

    @property
    def identity(self) -> str:
        """What changes how examples are encoded, as part of the cache key; empty for regard's tasks of text pairs."""
        settings = self.model_dump(mode="json", exclude={"tag"})
        if self.reads_plain_spaces:
            settings["spaces"] = "plain"
        if code := _own_code(type(self)):
            return json.dumps([settings, self.fields, code], sort_keys=True)
        return json.dumps([settings, self.fields], sort_keys=True) if self.fields != ("source", "target") else ""

    def predictions(self, model: Transformer, examples: Sequence[Example], tokenizer: Tokenizer) -> list[str]:
        """Return the answers of an encoder alone; of models that write, the decoder's texts are the answers."""
        raise InputError(f"{self.kind} has no answers that an encoder finds: its models are {self.shape}")

    def model_fields_for(self) -> dict[str, Any]:
        """Return the fields of a model's config that follow from the task."""
        return {}

    def learned_from(self, examples: Iterable[Example]) -> Self:
        """Return the task with what it has to know of its training data, such as the labels that there are."""
        return self


def _own_code(cls: type[Task]) -> list[str]:
    """Return the names of the classes of a task that are not regard's, with their source where there is one."""
    found = []
    for base in cls.__mro__:
        if issubclass(base, Task) and not base.__module__.startswith("regard."):
            try:
                source = inspect.getsource(base)
            except (OSError, TypeError):  # a class of a prompt
                source = ""
            found.append(f"{base.__module__}.{base.__qualname__}\n{source}")
    return found
