"""What the pipelines of transformers 4 have in common: one input, a list of them, or a stream."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, ClassVar

import torch

from regard.data import Tokenizer
from regard.decoding import SearchSettings
from regard.errors import ConfigError, InputError
from regard.hf_pipelines.options import CALL, LENGTHS, SEARCH, TOP_K, NoEffect, checked_options, count, search_changes
from regard.inference.pipeline import Pipeline
from regard.inference.texts import checked_texts
from regard.model import Transformer


class HuggingFacePipeline(ABC):
    """A model, called as pipelines of transformers 4 are; `regard.pipeline` makes one.

    `pipeline` is regard's own for the same model. Options given when it is made are those of every call.
    """

    kinds: ClassVar[tuple[str, ...]]
    """The kinds of task whose models it takes."""
    options: ClassVar[tuple[str, ...]]
    """The options of a call that something depends on."""
    no_effect: ClassVar[Mapping[str, NoEffect]] = CALL
    """Those that are taken although nothing does."""

    def __init__(self, pipeline: Pipeline, task: str, *, batch_size: int | None = None, **options: Any) -> None:
        self.pipeline, self.task = pipeline, task
        self._batch_size = count({"batch_size": batch_size}, "batch_size")
        self._options = self._checked(options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.pipeline!r})"

    @property
    def model(self) -> Transformer:
        """The model in plain PyTorch."""
        return self.pipeline.model

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of what the model reads."""
        return self.pipeline.source

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.pipeline.device

    def __call__(self, inputs: Any, *, batch_size: int | None = None, **options: Any) -> Any:
        """Return the result of an input, the results of a list, or those of any other iterable one after the other.

        Datasets and iterables that are no lists are read as far as results are asked for, `batch_size` inputs at once.
        """
        given = self._checked(options)
        chosen = {**self._options, **given}
        if isinstance(inputs, str | Mapping):
            (result,) = self._run([inputs], chosen)
            return self._single(inputs, result, given)
        if isinstance(inputs, list | tuple):
            return self._several(self._run(list(inputs), chosen) if inputs else [])
        size = count({"batch_size": batch_size}, "batch_size", self._batch_size)
        return self._stream(inputs, size, chosen)

    def _checked(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return checked_options(options, self.options, self.no_effect, f"a pipeline for {self.task}")

    def _stream(self, inputs: Iterable[Any], size: int, options: Mapping[str, Any]) -> Iterator[Any]:
        is_dataset = hasattr(inputs, "__getitem__") and hasattr(inputs, "__len__")  # such as torch's, read by index
        if isinstance(inputs, bytes) or not (is_dataset or isinstance(inputs, Iterable)):
            raise InputError(f"the input is a {type(inputs).__name__}; a text, a list or another iterable was expected")
        waiting = iter(inputs) if isinstance(inputs, Iterable) else (inputs[index] for index in range(len(inputs)))
        return (result for some in iter(lambda: list(islice(waiting, size)), []) for result in self._run(some, options))

    @abstractmethod
    def _run(self, inputs: list[Any], options: Mapping[str, Any]) -> list[Any]:
        """Return the result of each input."""

    def _single(self, given: Any, result: Any, options: Mapping[str, Any]) -> Any:
        """Return the result of an input by itself, called with these options."""
        return result

    def _several(self, results: list[Any]) -> Any:
        """Return the results of a list."""
        return results

    def _search(self, options: Mapping[str, Any], start: int) -> tuple[dict[str, Any], SearchSettings]:
        """Return options of a search as changes of regard's settings, and the settings that they give.

        `start` is how many tokens lengths count that regard's do not. What is wrong is said with the names of both.
        """
        changes = search_changes(options, start)
        if changes.get("sample") and not self.pipeline.settings.top_k:
            changes.setdefault("top_k", TOP_K)
        try:
            return changes, self.pipeline.with_changes(changes)
        except ConfigError as error:
            names = {ours: theirs for theirs, ours in {**SEARCH, **LENGTHS}.items() if ours != theirs}
            there = ", ".join(f"{names[ours]} is {ours} here" for ours in changes if ours in names)
            raise InputError(f"{error} ({there})" if there else str(error)) from None

    def _texts(self, inputs: list[Any], truncation: object, most: int | None = None) -> list[str]:
        """Return inputs that are texts. If asked to, cut those that have more tokens than a model has positions."""
        texts = checked_texts(inputs, "inputs")
        config = self.pipeline.config
        if most is None and config.longest is not None:
            most = config.longest - 1  # a tag may come before the text
        if most is None or truncation in (None, False, "do_not_truncate"):
            return texts
        return [_cut(text, self.pipeline.source, most - 1) for text in texts]


def _cut(text: str, tokenizer: Tokenizer, most: int) -> str:
    """Return a text up to so many tokens."""
    _, offsets = tokenizer.encode_with_offsets(text)
    return text if len(offsets) <= most else text[: offsets[most - 1][1] if most > 0 else 0]
