"""Text to text: any task whose examples are a text to read and a text to write."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, overload

from regard.data.corpora import Example
from regard.errors import InputError, shown
from regard.inference.pipeline import Pipeline
from regard.inference.results import GeneratedText
from regard.tasks.task import Task


class TextToTextTask(Task):
    """Pairs of texts: fields `source` and `target`."""

    kind: Literal["text2text"] = "text2text"

    metrics = ("exact", "bleu", "chrf", "rouge1", "rouge2", "rougeL", "code_bleu4", "code_exact")


class TextToText(Pipeline):
    """A model put to work on the examples of a text-to-text task, one of regard's or one of your own."""

    kind: ClassVar[str] = "text2text"
    verb: ClassVar[str] = "generate"

    @property
    def task(self) -> Task:
        """The task, with its settings."""
        return self._task if isinstance(self._task, Task) else TextToTextTask()

    def encoded(self, text: str) -> list[int]:
        """Return the source tokens of a text, as the task has them."""
        return super().encoded(self.task.spaced(text))

    @overload
    def write(self, examples: Example, **changes: Any) -> GeneratedText: ...
    @overload
    def write(self, examples: Sequence[Example], **changes: Any) -> list[GeneratedText]: ...
    def write(self, examples: Example | Sequence[Example], **changes: Any) -> GeneratedText | list[GeneratedText]:
        """Return the answer to an example, or to several at once. The fields of `SearchSettings` change the search.

        An example has the fields of the task but the one that is written, such as `{"source": "a text"}`.
        """
        several = [examples] if isinstance(examples, Mapping) else list(examples)
        texts = self.generate([self._source(example) for example in several], **changes)
        answers = [self._answer(text) for text in texts]
        return answers[0] if isinstance(examples, Mapping) else answers

    def predictions(self, examples: Sequence[Example], **changes: Any) -> list[str]:
        """Return the answers to examples, as metrics compare them."""
        return [one.text for one in self.write(examples, **changes)]

    def _source(self, example: Example) -> str:
        task = self.task
        if not isinstance(example, Mapping):
            raise InputError(f"an example is {shown(example)}; a dict with the fields of {task.kind} was expected")
        try:
            return task.source(example)
        except KeyError as error:
            fields = ", ".join(task.fields[:-1])
            raise InputError(f"an example has no field {error}; {task.kind} reads {fields}") from None

    def _answer(self, generated: GeneratedText) -> GeneratedText:
        others = tuple(self._answer(one) for one in generated.alternatives)
        return replace(generated, text=self.task.answer(generated.text), alternatives=others)
