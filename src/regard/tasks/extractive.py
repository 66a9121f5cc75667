"""Extractive question answering: the answer is a span of the context, found by its start and its end."""

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, overload

import torch
from pydantic import Field
from torch import Tensor

from regard.data import Tokenizer, padded
from regard.data.corpora import Example
from regard.data.tokenizer import END, PAD, START
from regard.errors import DataError, InputError
from regard.inference.pipeline import Pipeline
from regard.model import Transformer
from regard.tasks.question_answering import question_pairs
from regard.tasks.task import Task, TokenPair

_BATCH = 32  # windows that are read together
_AFTER_WORDS = " \t\n.,;:!?"  # tokens of subwords may have a word and the sign after it in one


class ExtractiveTask(Task):
    """Questions about texts: fields `context`, `question` and `answers`. The answer is copied from the context.

    The source is `<s> question <s> context </s>`. A question without an answer points at its first token. A context
    that does not fit is read in windows that overlap.
    """

    kind: Literal["extractive-question-answering"] = "extractive-question-answering"
    window: Annotated[int, Field(ge=16, le=65_535, strict=True)] = 384
    """How many tokens a source has at most, the question among them."""
    overlap: Annotated[int, Field(ge=0, strict=True)] = 64
    """How many tokens of the context two windows have in common."""
    longest_answer: Annotated[int, Field(ge=1, strict=True)] = 30
    """The most tokens that an answer has."""
    threshold: float = 0.0
    """How much better than no answer, in logits, an answer must be."""

    shape = "encoder-only"
    fields = ("context", "question", "answers")
    metrics = ("squad_f1", "squad_exact")

    def check(self) -> None:
        """Raise an `InputError` where fields do not fit together."""
        if self.overlap >= self.window:
            raise InputError(f"overlap {self.overlap} is not less than the window of {self.window} tokens")
        if not math.isfinite(self.threshold):
            raise InputError(f"threshold is {self.threshold}; a number was expected")

    @property
    def longest_part(self) -> int:
        """The length of a window."""
        return self.window

    def texts(self, example: Example) -> tuple[str, ...]:
        """Return the context and the question."""
        return example["context"], example["question"]

    def references(self, example: Example) -> list[str]:
        """Return all answers that were given; the empty one for a question without any."""
        return [answer.text for answer in example["answers"]] or [""]

    def encode(self, examples: Sequence[Example], source: Tokenizer, target: Tokenizer) -> list[TokenPair]:
        """Return the windows of each example, each with the first and the last token of the answer in it."""
        pairs: list[TokenPair] = []
        for example in examples:
            span = _span(example)
            windows = self.windows(example["context"], example["question"], source, span)
            pairs += [(window.tokens, window.place(span)) for window in windows]
        return pairs

    def windows(
        self, context: str, question: str, tokenizer: Tokenizer, span: tuple[int, int] | None = None
    ) -> list["Window"]:
        """Return the windows of a context under a question, without their ends.

        An answer, a span of characters, that none of them holds whole has a window of its own.
        """
        before = tokenizer.encode(question)
        tokens, offsets = tokenizer.encode_with_offsets(context)
        size = self.window - len(before) - 3  # two starts and the end
        if size <= self.overlap:
            raise InputError(
                f"the question {question[:30]!r} has {len(before)} tokens, which leaves no place for its context "
                f"in a window of {self.window}"
            )
        start = tokenizer.number(START)
        before = [start, *before, start]
        starts = [first for first, _ in offsets[1:]] + [len(context)]  # of the token after each

        def window(first: int) -> Window:
            last = min(first + size, len(tokens))
            end = starts[last - 1] if tokens else len(context)
            return Window([*before, *tokens[first:last]], len(before), offsets[first:last], end)

        found = [window(first) for first in range(0, max(1, len(tokens) - self.overlap), size - self.overlap)]
        if span is not None and not any(one.holds(span) for one in found):
            inside = [at for at, (start, end) in enumerate(offsets) if start < span[1] and end > span[0]]
            if not inside or len(inside) > size:
                raise InputError(
                    f"the answer {context[span[0] : span[1]][:40]!r} has {len(inside)} tokens, "
                    f"and a window has place for 1 to {size}"
                )
            found.append(window(max(0, inside[0] - (size - len(inside)) // 2)))
        return found

    def model_fields_for(self) -> dict[str, Any]:
        """Return an encoder alone, with a head for the start and the end."""
        return {"decoder_layers": 0, "head": {"kind": "span"}}

    def predictions(self, model: Transformer, examples: Sequence[Example], tokenizer: Tokenizer) -> list[str]:
        """Return the answer to each question; the empty text where there is none."""
        spans = self.best_spans(model, [(example["context"], example["question"]) for example in examples], tokenizer)
        return ["" if span[0].is_null else span[0].text for span in spans]

    @torch.no_grad()
    def best_spans(
        self, model: Transformer, questions: Sequence[tuple[str, str]], tokenizer: Tokenizer, count: int = 1
    ) -> list[list["Span"]]:
        """Return the best answers to questions about contexts, best first; no answer is one of them."""
        windows = [
            (number, window)
            for number, (context, question) in enumerate(questions)
            for window in self.windows(context, question, tokenizer)
        ]
        candidates: list[list[Span]] = [[] for _ in questions]
        nulls = [float("inf")] * len(questions)
        totals_Q2 = torch.full((len(questions), 2), -torch.inf)  # log Σ exp of the logits of all windows
        order = sorted(range(len(windows)), key=lambda place: len(windows[place][1].tokens))
        for first in range(0, len(order), _BATCH):
            chosen = [windows[place] for place in order[first : first + _BATCH]]
            end = tokenizer.number(END)
            source_BS = padded([[*window.tokens, end] for _, window in chosen], tokenizer.number(PAD))
            logits_BS2 = model(source_BS.to(model.device)).float().cpu()
            for (number, window), logits_S2 in zip(chosen, logits_BS2, strict=True):
                nulls[number] = min(nulls[number], float(logits_S2[0].sum()))
                totals_Q2[number] = torch.logaddexp(totals_Q2[number], window.total(logits_S2))
                context = questions[number][0]
                candidates[number] += window.best(logits_S2, context, self.longest_answer, count)
        return [
            _ranked(some, null, self.threshold, total, count)
            for some, null, total in zip(candidates, nulls, totals_Q2.sum(1).tolist(), strict=True)
        ]


@dataclass(frozen=True)
class Span:
    """A part of a context as an answer. `str()` of it is the text."""

    text: str
    """Empty where there is no answer."""
    start: int
    """The place of its first character in the context."""
    end: int
    logit: float
    """Of start and end together."""
    score: float = 0.0
    """Its probability: that of its start times that of its end, among all tokens of the context and no answer."""
    alternatives: tuple["Span", ...] = ()
    """The next best, where more than one was asked for."""

    @property
    def is_null(self) -> bool:
        """Whether it stands for no answer."""
        return self.start == self.end

    def __str__(self) -> str:
        return self.text

    def content(self) -> dict[str, Any]:
        """Return all that is known of it, for JSON."""
        content: dict[str, Any] = {
            "text": self.text,
            "score": round(self.score, 6),
            "start": self.start,
            "end": self.end,
        }
        if self.alternatives:
            content["alternatives"] = [one.content() for one in self.alternatives]
        return content

    def warnings(self) -> Iterator[str]:
        """Return what may be wrong with it: nothing."""
        return iter(())


@dataclass(frozen=True)
class Window:
    """A part of a context, behind its question."""

    tokens: list[int]
    first: int
    """The place of the first token of the context."""
    offsets: list[tuple[int, int]]
    """Where each token of the context is, in characters of the whole context."""
    end: int
    """Where the token after the last one begins. A token may end before: accents that it has taken in are no part."""

    def holds(self, span: tuple[int, int]) -> bool:
        """Whether a span of characters is in here whole."""
        return any(self.place(span))

    def place(self, span: tuple[int, int] | None) -> list[int]:
        """Return the first and the last token of a span of characters; the first token of all if it is not in here."""
        if span is None or not self.offsets:
            return [0, 0]
        inside = [at for at, (start, end) in enumerate(self.offsets) if start < span[1] and end > span[0]]
        whole = inside and self.offsets[0][0] <= span[0] and span[1] <= self.end
        return [self.first + inside[0], self.first + inside[-1]] if whole else [0, 0]

    def total(self, logits_S2: Tensor) -> Tensor:
        """Return log Σ exp of the logits of starts and of ends, over the context and no answer: (2)."""
        context = slice(self.first, self.first + len(self.offsets))
        return torch.cat([logits_S2[:1], logits_S2[context]]).logsumexp(0)

    def best(self, logits_S2: Tensor, context: str, longest: int, count: int) -> list[Span]:
        """Return the spans with the highest logits."""
        T = len(self.offsets)
        start_T, end_T = logits_S2[self.first : self.first + T].unbind(1)
        scores_TT = start_T[:, None] + end_T
        allowed = torch.ones(T, T, dtype=torch.bool).triu() & ~torch.ones(T, T, dtype=torch.bool).triu(longest)
        # A span of nothing but spaces and signs is no answer: it has no word up to its end that was not before it.
        words_T = torch.tensor([bool(context[start:end].strip(_AFTER_WORDS)) for start, end in self.offsets])
        until_T = words_T.cumsum(0)
        allowed &= until_T > (until_T - words_T.long())[:, None]
        best = scores_TT.masked_fill(~allowed, -torch.inf).flatten().topk(min(count, T))
        spans = []
        for logit, place in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            if logit > -math.inf:
                start, end = self._trimmed(context, place // T, place % T)
                spans.append(Span(context[start:end], start, end, logit))
        return spans

    def _trimmed(self, context: str, first: int, last: int) -> tuple[int, int]:
        """Return the characters of tokens, without the space before them, and without signs in a token with a word."""
        start, end = self.offsets[first][0], self.offsets[last][1]
        while end < len(context) and unicodedata.combining(context[end]):  # an accent belongs to the letter before it
            end += 1
        start += len(context[start:end]) - len(context[start:end].lstrip())
        if context[slice(*self.offsets[last])].strip(_AFTER_WORDS):
            end = start + len(context[start:end].rstrip(_AFTER_WORDS))
        return start, start + len(context[start:end].rstrip())


class AnswerExtractor(Pipeline):
    """A model ready to find answers to questions in texts."""

    kind: ClassVar[str] = "extractive-question-answering"
    verb: ClassVar[str] = "answer"
    shape = "encoder-only"

    @property
    def task(self) -> ExtractiveTask:
        """The task, with its windows and its threshold."""
        return self._task if isinstance(self._task, ExtractiveTask) else ExtractiveTask()

    @overload
    def answer(  # type: ignore[overload-overlap]
        self, questions: str, contexts: str, *, n_best: int = 1, threshold: float | None = None
    ) -> Span: ...
    @overload
    def answer(
        self,
        questions: Sequence[str],
        contexts: str | Sequence[str],
        *,
        n_best: int = 1,
        threshold: float | None = None,
    ) -> list[Span]: ...
    def answer(
        self,
        questions: str | Sequence[str],
        contexts: str | Sequence[str],
        *,
        n_best: int = 1,
        threshold: float | None = None,
    ) -> Span | list[Span]:
        """Find the answer to a question in a context, or to several, each in its own context or all in one.

        A context of any length is read in windows. `threshold` is how much better than no answer, in logits, an answer
        must be, where it is not the task's own; an answer that is not has an empty text.
        """
        task = self.task if threshold is None else type(self.task)(**{**self.task.model_dump(), "threshold": threshold})
        if not isinstance(n_best, int) or n_best < 1:
            raise InputError(f"n_best is {n_best!r}; a whole number of at least 1 was expected")
        pairs = [(context, question) for question, context in question_pairs(questions, contexts)]
        found = [
            replace(spans[0], alternatives=tuple(spans[1:n_best]))
            for spans in task.best_spans(self.model.eval(), pairs, self.source, n_best)
        ]
        return found[0] if isinstance(questions, str) else found

    def predictions(self, examples: Sequence[Example]) -> list[str]:
        """Return the answers to examples, as metrics compare them."""
        return self.task.predictions(self.model.eval(), examples, self.source)


def _ranked(spans: list[Span], null: float, threshold: float, total: float, count: int) -> list[Span]:
    """Return distinct spans and the null span, best first, with their probabilities.

    A span comes before the null span only if it is better by the threshold.
    """
    distinct: dict[tuple[int, int], Span] = {}
    for span in sorted(spans, key=lambda span: -span.logit):
        distinct.setdefault((span.start, span.end), span)
    both = [Span("", 0, 0, null), *distinct.values()]
    ranked = sorted(both, key=lambda span: -(span.logit + threshold if span.is_null else span.logit))
    return [replace(span, score=math.exp(min(0.0, span.logit - total))) for span in ranked[: count + 1]]


def _span(example: Example) -> tuple[int, int] | None:
    """Return where the first answer is in its context, in characters."""
    if not example["answers"]:
        return None
    answer, context = example["answers"][0], example["context"]
    start = context.find(answer.text) if answer.start is None else answer.start
    if start < 0 or context[start : start + len(answer.text)] != answer.text:
        raise DataError(f"the answer {answer.text[:40]!r} to {example['question'][:40]!r} is not in its context")
    return start, start + len(answer.text)
