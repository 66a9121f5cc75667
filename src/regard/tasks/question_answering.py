"""Question answering in words: a question and its context are the source, the answer is the target."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, overload

from regard.data.corpora import Example
from regard.errors import InputError
from regard.inference.results import GeneratedText
from regard.inference.texts import checked_texts
from regard.tasks.task import Task
from regard.tasks.text2text import TextToText


class QuestionAnsweringTask(Task):
    """Questions about texts: fields `context`, `question` and `answers`. What is written need not be in the context."""

    kind: Literal["question-answering"] = "question-answering"
    no_answer: str = "unanswerable"
    """What the model writes for a question that the context does not answer."""
    question: Literal["first", "last"] = "first"
    """Where the question is in the source: before its context, or after it."""

    fields = ("context", "question", "answers")
    reads_plain_spaces = True
    metrics = ("squad_f1", "squad_exact", "exact")

    def source(self, example: Example) -> str:
        """Return the question and the context."""
        texts = (example["question"], example["context"])
        return " ".join(texts if self.question == "first" else reversed(texts)).strip()

    def target(self, example: Example) -> str:
        """Return the first answer."""
        answers = example["answers"]
        return str(answers[0].text) if answers else self.no_answer

    def references(self, example: Example) -> list[str]:
        """Return all answers that were given; the empty one for a question without any."""
        return [answer.text for answer in example["answers"]] or [""]

    def answer(self, text: str) -> str:
        """Return what was written, or nothing where it says that there is no answer."""
        return "" if text == self.no_answer else text


class QuestionAnswerer(TextToText):
    """A model ready to answer questions about texts in its own words."""

    kind: ClassVar[str] = "question-answering"
    verb: ClassVar[str] = "answer"

    @overload
    def answer(self, questions: str, contexts: str, **changes: Any) -> GeneratedText: ...
    @overload
    def answer(
        self, questions: Sequence[str], contexts: str | Sequence[str], **changes: Any
    ) -> list[GeneratedText]: ...
    def answer(
        self, questions: str | Sequence[str], contexts: str | Sequence[str], **changes: Any
    ) -> GeneratedText | list[GeneratedText]:
        """Answer a question about a context, or several, each about its own context or all about one."""
        pairs = question_pairs(questions, contexts)
        answers = self.write([{"question": question, "context": context} for question, context in pairs], **changes)
        return answers[0] if isinstance(questions, str) else answers


def question_pairs(questions: str | Sequence[str], contexts: str | Sequence[str]) -> list[tuple[str, str]]:
    """Return questions with their contexts; raise an `InputError` where one is missing."""
    several = checked_texts(questions, "questions")
    about = checked_texts(contexts, "contexts")
    if isinstance(contexts, str):
        about = about * len(several)
    if len(several) != len(about):
        raise InputError(f"there are {len(several)} questions and {len(about)} contexts; each question has one")
    pairs = list(zip(several, about, strict=True))
    for question, context in pairs:
        if not question.strip():
            raise InputError("a question is empty")
        if not context.strip():
            raise InputError(f"the question {question[:40]!r} has no context to find the answer in")
    return pairs
