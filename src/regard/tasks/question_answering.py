"""Question answering in words: a context and a question are the source, the answer is the target."""

from typing import Literal

from regard.data.corpora import Example
from regard.tasks.task import Task


class QuestionAnsweringTask(Task):
    """Questions about texts: fields `context`, `question` and `answers`. What is written need not be in the context."""

    kind: Literal["question-answering"] = "question-answering"
    no_answer: str = "unanswerable"
    """What the model writes for a question that the context does not answer."""

    fields = ("context", "question", "answers")
    metrics = ("squad_f1", "squad_exact", "exact")

    def source(self, example: Example) -> str:
        """Return the question, then the context: a long context is cut at its end, never the question."""
        return f"{example['question']} {example['context']}".strip()

    def target(self, example: Example) -> str:
        """Return the first answer."""
        answers = example["answers"]
        return answers[0].text if answers else self.no_answer

    def references(self, example: Example) -> list[str]:
        """Return all answers that were given; none for a question without one."""
        return [answer.text for answer in example["answers"]] or [""]

    def answer(self, text: str) -> str:
        """Return what was written, or nothing where it says that there is no answer."""
        return "" if text == self.no_answer else text
