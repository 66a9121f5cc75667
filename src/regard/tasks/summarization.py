"""Summarization: a document to a short text."""

from typing import Literal

from regard.tasks.task import Task


class SummarizationTask(Task):
    """Documents with their summaries: fields `document` and `summary`."""

    kind: Literal["summarization"] = "summarization"

    fields = ("document", "summary")
    metrics = ("rouge1", "rouge2", "rougeL", "bleu", "chrf", "exact")
