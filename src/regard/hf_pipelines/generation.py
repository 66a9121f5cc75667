"""Pipelines that write: translation, summarization, text to text, and text generation."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from regard.data.tokenizer import END
from regard.errors import InputError
from regard.hf_pipelines.base import HuggingFacePipeline
from regard.hf_pipelines.options import CALL, GENERATION, NoEffect
from regard.inference.results import GeneratedText
from regard.tasks.language_modeling import TextGenerator
from regard.tasks.summarization import Summarizer
from regard.tasks.text2text import TextToText
from regard.tasks.translation import Translator

_LOOSE_SPACE = re.compile(r" (?=[.,!?]|n't\b|'(?:m|s|ve|re)\b)")


class Text2TextGenerationPipeline(HuggingFacePipeline):
    """Texts to texts. A text gives a list of dicts, a list of texts one dict each, or a list of them each."""

    kinds: ClassVar[tuple[str, ...]] = ("text2text", "summarization")
    options: ClassVar[tuple[str, ...]] = (*GENERATION, "truncation")
    name: ClassVar[str] = "generated_text"
    """The key of a text in its dict."""
    pipeline: TextToText

    def _run(self, inputs: list[Any], options: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
        changes, settings = self._search(options, start=1)
        made = self._written(self._texts(inputs, options.get("truncation")), options, changes)
        return [[self._output(text, options) for text in _all(one, settings.n_best)] for one in made]

    def _output(self, made: GeneratedText, options: Mapping[str, Any]) -> dict[str, Any]:
        if options.get("return_tensors"):
            target = self.pipeline.target
            ids = [target.number(token) for token in made.tokens]
            return {f"{self.name.removesuffix('_text')}_token_ids": torch.tensor([*ids, target.number(END)])}
        return {self.name: _cleaned(made.text, options)}

    def _several(self, results: list[Any]) -> Any:
        return [result[0] for result in results] if all(len(result) == 1 for result in results) else results

    def _written(
        self, texts: list[str], options: Mapping[str, Any], changes: dict[str, Any]
    ) -> Sequence[GeneratedText]:
        field = self.pipeline.task.fields[0]
        return self.pipeline.write([{field: text} for text in texts], **changes)


class SummarizationPipeline(Text2TextGenerationPipeline):
    """Documents to summaries."""

    kinds: ClassVar[tuple[str, ...]] = ("summarization",)
    name: ClassVar[str] = "summary_text"
    pipeline: Summarizer

    def _written(
        self, texts: list[str], options: Mapping[str, Any], changes: dict[str, Any]
    ) -> Sequence[GeneratedText]:
        return self.pipeline.summarize(texts, **changes)


class TranslationPipeline(Text2TextGenerationPipeline):
    """Texts to their translations, sentence by sentence: lengths are those of a sentence."""

    kinds: ClassVar[tuple[str, ...]] = ("translation",)
    options: ClassVar[tuple[str, ...]] = (*Text2TextGenerationPipeline.options, "src_lang", "tgt_lang")
    name: ClassVar[str] = "translation_text"
    pipeline: Translator  # type: ignore[assignment]

    def _written(
        self, texts: list[str], options: Mapping[str, Any], changes: dict[str, Any]
    ) -> Sequence[GeneratedText]:
        to, languages = options.get("tgt_lang"), self.pipeline.languages
        if to is None and len(languages) > 1:
            raise InputError(
                f"the model writes {' and '.join(languages)}; choose one with tgt_lang, or with a task such as "
                f"translation_{languages[0]}_to_{languages[1]}"
            )
        return self.pipeline.translate(texts, to=to if languages else None, **changes)


class TextGenerationPipeline(HuggingFacePipeline):
    """Prompts and what follows them. A prompt gives a list of dicts, a list of prompts a list of such lists."""

    kinds: ClassVar[tuple[str, ...]] = ("language-modeling",)
    options: ClassVar[tuple[str, ...]] = (*GENERATION, "prefix", "return_full_text")
    no_effect: ClassVar[Mapping[str, NoEffect]] = {
        **CALL,
        "truncation": NoEffect(),
    }  # a prompt that is too long is refused
    pipeline: TextGenerator

    def __call__(self, text_inputs: Any, **options: Any) -> Any:  # type: ignore[override]  # theirs has this name
        """Go on with a text, a list of texts, or those of another iterable."""
        return super().__call__(text_inputs, **options)

    def _run(self, inputs: list[Any], options: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
        if any(isinstance(one, Mapping | list | tuple) for one in inputs):
            raise InputError("a prompt is a text; chats are for models that were trained on them")
        (prefix,) = self._texts([options.get("prefix") or ""], None)
        prompts = [prefix + text for text in self._texts(inputs, None)]
        tokens = [self.pipeline.target.encode(prompt) for prompt in prompts]
        found: dict[int, list[dict[str, Any]]] = {}
        for length in {len(some) for some in tokens}:  # max_length and min_length count the prompt
            places = [place for place, some in enumerate(tokens) if len(some) == length]
            changes, settings = self._search(options, start=length)
            made = self.pipeline.generate([prompts[place] for place in places], **changes)
            for place, one in zip(places, made, strict=True):
                read = len(self.pipeline.target.decode(tokens[place]))
                before = "" if options.get("return_full_text") is False else inputs[place]
                if options.get("return_tensors"):
                    ids = [
                        [self.pipeline.target.number(token) for token in some.tokens]
                        for some in _all(one, settings.n_best)
                    ]
                    found[place] = [{"generated_token_ids": tokens[place] + some} for some in ids]
                    continue
                texts = [before + _cleaned(some.text[read:], options) for some in _all(one, settings.n_best)]
                found[place] = [{"generated_text": text} for text in texts]
        return [found[place] for place in range(len(inputs))]


def _all(made: GeneratedText, wanted: int) -> list[GeneratedText]:
    """Return the best texts, as many as are wanted: where a model has found fewer that differ, the last again."""
    ranked: list[GeneratedText] = [made, *made.alternatives]
    return ranked + ranked[-1:] * (wanted - len(ranked))


def _cleaned(text: str, options: Mapping[str, Any]) -> str:
    """Return a text without spaces before punctuation and contractions, where that is asked for."""
    return _LOOSE_SPACE.sub("", text) if options.get("clean_up_tokenization_spaces") else text
