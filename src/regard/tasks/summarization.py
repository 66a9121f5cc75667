"""Summarization: a document to a short text."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, overload

from regard.errors import InputError
from regard.inference.results import GeneratedText
from regard.inference.texts import checked_texts
from regard.tasks.task import Task
from regard.tasks.text2text import TextToText


class SummarizationTask(Task):
    """Documents with their summaries: fields `document` and `summary`."""

    kind: Literal["summarization"] = "summarization"

    fields = ("document", "summary")
    reads_plain_spaces = True
    metrics = ("rouge1", "rouge2", "rougeL", "bleu", "chrf", "exact")


class Summarizer(TextToText):
    """A model ready to summarize. `regard.load` makes one from the directory of a model that was trained for it."""

    kind: ClassVar[str] = "summarization"
    verb: ClassVar[str] = "summarize"

    @overload
    def summarize(self, documents: str, **changes: Any) -> GeneratedText: ...
    @overload
    def summarize(self, documents: Sequence[str], **changes: Any) -> list[GeneratedText]: ...
    def summarize(self, documents: str | Sequence[str], **changes: Any) -> GeneratedText | list[GeneratedText]:
        """Summarize a document, or several at once.

        The fields of `SearchSettings` change the search: `min_length` and `max_length`, in tokens, control how long a
        summary is, `no_repeat` keeps n-grams from coming twice. A document is read whole, however long it is.
        """
        texts = checked_texts(documents, "documents")
        check_documents(texts)
        summaries = self.write([{"document": text} for text in texts], **changes)
        return summaries[0] if isinstance(documents, str) else summaries


def check_documents(texts: Sequence[str]) -> None:
    """Raise an `InputError` where a document is empty."""
    for number, text in enumerate(texts, 1):
        if not text.strip():
            raise InputError(f"document {number} is empty; there is nothing to summarize")
