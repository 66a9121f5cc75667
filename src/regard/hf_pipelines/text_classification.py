"""The pipeline for text classification: labels with scores."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from regard.errors import InputError, shown
from regard.hf_pipelines.base import HuggingFacePipeline
from regard.hf_pipelines.options import count
from regard.tasks.classification import Classifier

Label = dict[str, Any]


class TextClassificationPipeline(HuggingFacePipeline):
    """Texts to labels. A text gives a list with one dict, a list of texts one dict each; with `top_k`, lists of dicts.

    With `top_k=None` all labels are given, the most probable first; with `return_all_scores=True` all in their order.
    """

    kinds: ClassVar[tuple[str, ...]] = ("classification",)
    options: ClassVar[tuple[str, ...]] = (
        "top_k",
        "return_all_scores",
        "function_to_apply",
        "truncation",
        "max_length",
    )
    pipeline: Classifier

    def _run(self, inputs: list[Any], options: Mapping[str, Any]) -> list[Label | list[Label]]:
        most = None if options.get("max_length") is None else count(options, "max_length")
        truncation = options.get("truncation", True if most else None)
        texts = self._texts([_text_of(one) for one in inputs], truncation, most)
        classifier = self.pipeline
        logits = classifier.task.logits(classifier.model.eval(), texts, classifier.source)
        scores = _applied(options.get("function_to_apply"), logits)
        return [self._labels(row, options) for row in scores.tolist()]

    def _single(self, given: Any, result: Any, options: Mapping[str, Any]) -> Any:
        # Theirs is a list for a text, unless the call itself has top_k, whose result is a list already.
        return [result] if isinstance(given, str) and "top_k" not in options else result

    def _labels(self, scores: list[float], options: Mapping[str, Any]) -> Label | list[Label]:
        every: list[Label] = [
            {"label": label, "score": score} for label, score in zip(self.pipeline.labels, scores, strict=True)
        ]
        if options.get("return_all_scores") and "top_k" not in options:
            return every
        ranked = sorted(every, key=lambda one: -one["score"])
        if "top_k" not in options:
            return ranked[0]
        return ranked if options["top_k"] is None else ranked[: count(options, "top_k")]


def _text_of(given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    if given.get("text_pair") is not None or "text" not in given:
        raise InputError(f"an input has {', '.join(map(str, given))}; a text, or a dict with text alone, was expected")
    return given["text"]


def _applied(function: object, logits: Tensor) -> Tensor:
    """Return the scores that a function makes of logits."""
    match function.lower() if isinstance(function, str) else function:
        case None | "default" | "softmax":
            return logits.softmax(-1)
        case "sigmoid":
            return logits.sigmoid()
        case "none":
            return logits
    raise InputError(f"function_to_apply is {shown(function)}; it is one of softmax, sigmoid, none, default")
