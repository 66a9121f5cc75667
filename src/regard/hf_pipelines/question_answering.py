"""The pipeline for question answering, over models that find answers in a context and models that write them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from regard.errors import ConfigError, InputError
from regard.hf_pipelines.base import HuggingFacePipeline
from regard.hf_pipelines.options import CALL, NoEffect, count
from regard.inference.results import GeneratedText
from regard.tasks.extractive import AnswerExtractor, ExtractiveTask
from regard.tasks.question_answering import QuestionAnswerer, question_pairs

Answer = dict[str, Any]
_WINDOWS = {"max_seq_len": "window", "doc_stride": "overlap", "max_answer_len": "longest_answer"}
"""Each with the field of `ExtractiveTask` that it sets."""


class QuestionAnsweringPipeline(HuggingFacePipeline):
    """Questions about contexts. A question gives a dict with score, start, end and answer; with `top_k`, a list.

    A list of one question counts as one question. Where a model writes answers in its own words, one that is not in the
    context has -1 for its start and its end.
    """

    kinds: ClassVar[tuple[str, ...]] = ("extractive-question-answering", "question-answering")
    options: ClassVar[tuple[str, ...]] = (*_WINDOWS, "top_k", "topk", "handle_impossible_answer", "align_to_words")
    no_effect: ClassVar[Mapping[str, NoEffect]] = {**CALL, "max_question_len": NoEffect()}
    pipeline: AnswerExtractor | QuestionAnswerer

    def __call__(self, *inputs: Any, question: Any = None, context: Any = None, **options: Any) -> Any:
        """Answer `qa(question=…, context=…)`, texts or lists of them, or dicts with both: one, a list, an iterable."""
        given = options.pop("data", None) or options.pop("X", None)
        if inputs:
            given = inputs[0] if len(inputs) == 1 else _joined(*inputs) if _are_texts(inputs) else list(inputs)
        elif given is None:
            given = _joined(question, context)
        if isinstance(given, list | tuple) and len(given) == 1:
            given = given[0]
        return super().__call__(given, **options)

    @staticmethod
    def create_sample(question: Any, context: Any) -> Any:
        """Return a question with its context, or several, as calls take them."""
        return _joined(question, context)

    def _run(self, inputs: list[Any], options: Mapping[str, Any]) -> list[Answer | list[Answer]]:
        asked = [_question_and_context(one) for one in inputs]
        pairs = question_pairs([question for question, _ in asked], [context for _, context in asked])
        wanted = count(options, "topk" if options.get("top_k") is None else "top_k")
        find = self._extracted if isinstance(self.pipeline, AnswerExtractor) else self._written
        found = [_answers(some, wanted, options) for some in find(pairs, wanted, options)]
        return [some[0] if len(some) == 1 else some for some in found]

    def _extracted(self, pairs: list[tuple[str, str]], wanted: int, options: Mapping[str, Any]) -> list[list[Answer]]:
        assert isinstance(self.pipeline, AnswerExtractor)
        task = _with_windows(self.pipeline.task, options)
        read = [(context, question) for question, context in pairs]
        found = task.best_spans(self.pipeline.model.eval(), read, self.pipeline.source, wanted)
        aligned = options.get("align_to_words") is not False
        answers = []
        for (context, _), spans in zip(read, found, strict=True):
            places = [_words(context, span.start, span.end) if aligned else (span.start, span.end) for span in spans]
            answers.append(
                [
                    {"score": span.score, "start": start, "end": end, "answer": context[start:end]}
                    for span, (start, end) in zip(spans, places, strict=True)
                ]
            )
        return answers

    def _written(self, pairs: list[tuple[str, str]], wanted: int, options: Mapping[str, Any]) -> list[list[Answer]]:
        assert isinstance(self.pipeline, QuestionAnswerer)
        # One more, in case that the best says that there is no answer.
        renamed = {"num_return_sequences": wanted + 1, "max_new_tokens": options.get("max_answer_len")}
        changes, settings = self._search(renamed, start=0)
        questions, contexts = zip(*pairs, strict=True)
        answers = []
        for best, context in zip(self.pipeline.answer(questions, contexts, **changes), contexts, strict=True):
            ranked: list[GeneratedText] = [best, *best.alternatives]
            some = [_written_answer(one, context, settings.length_penalty) for one in ranked]
            answers.append(sorted(some, key=lambda answer: -answer["score"]))
        return answers


def _are_texts(inputs: Sequence[Any]) -> bool:
    return len(inputs) == 2 and all(isinstance(one, str) for one in inputs)


def _joined(question: Any, context: Any) -> Any:
    """Return questions with their contexts, as dicts; one context may be that of all questions."""
    if question is None or context is None:
        raise InputError("a question and the context to find its answer in were expected: question=…, context=…")
    if isinstance(question, str):
        return {"question": question, "context": context}
    pairs = question_pairs(question, context)
    return [{"question": asked, "context": read} for asked, read in pairs]


def _question_and_context(given: Any) -> tuple[str, str]:
    for name in ("question", "context"):
        if not isinstance(given, Mapping) or not isinstance(given.get(name), str):
            raise InputError(f"an input has no {name}; a dict with question and context, both texts, was expected")
    return given["question"], given["context"]


def _with_windows(task: ExtractiveTask, options: Mapping[str, Any]) -> ExtractiveTask:
    """Return a task with windows and lengths as options say."""
    changes = {ours: options[theirs] for theirs, ours in _WINDOWS.items() if options.get(theirs) is not None}
    if "window" in changes and "overlap" not in changes:
        changes["overlap"] = min(task.overlap, max(0, count(options, "max_seq_len") // 2 - 1))
    try:
        return type(task)(**{**task.model_dump(), **changes})
    except ConfigError as error:
        there = ", ".join(f"{theirs} is {ours} here" for theirs, ours in _WINDOWS.items() if ours in changes)
        raise InputError(f"{error} ({there})") from None


def _words(context: str, start: int, end: int) -> tuple[int, int]:
    """Return a span with the rest of the words that it begins and ends in."""
    while 0 < start < end and context[start - 1 : start + 1].isalnum():
        start -= 1
    while start < end < len(context) and context[end - 1 : end + 1].isalnum():
        end += 1
    return start, end


def _written_answer(made: GeneratedText, context: str, power: float) -> Answer:
    """Return an answer in a model's own words, with its probability and its place, if it is in the context."""
    probability = math.exp(min(0.0, made.score * (len(made.tokens) + 1) ** power))
    start = context.find(made.text)
    end = start + len(made.text) if start >= 0 else start
    return {"score": probability, "start": start, "end": end, "answer": made.text}


def _answers(found: list[Answer], wanted: int, options: Mapping[str, Any]) -> list[Answer]:
    """Return the best answers that differ in place and text; that there is none counts only if it is asked for."""
    if not options.get("handle_impossible_answer"):
        found = [one for one in found if one["answer"]] or found
    distinct: dict[tuple[int, int, str], Answer] = {}
    for one in found:
        distinct.setdefault((one["start"], one["end"], one["answer"]), one)
    return list(distinct.values())[:wanted]
