"""Text to text: any task whose examples are pairs of texts."""

from typing import Literal

from regard.tasks.task import Task


class TextToTextTask(Task):
    """Pairs of texts, with fields `source` and `target`."""

    kind: Literal["text2text"] = "text2text"
    metrics = ("exact", "bleu", "chrf", "rouge1", "rouge2", "rougeL", "code_bleu4")
