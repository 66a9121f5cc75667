"""`regard.pipeline`: the pipeline of a task by the name that transformers 4 has for it."""

import os
import random
import re
from difflib import get_close_matches
from typing import Any

import numpy as np
import torch

from regard import models
from regard.devices import resolve_device
from regard.errors import InputError, ModelError, shown
from regard.hf_pipelines.base import HuggingFacePipeline
from regard.hf_pipelines.generation import (
    SummarizationPipeline,
    Text2TextGenerationPipeline,
    TextGenerationPipeline,
    TranslationPipeline,
)
from regard.hf_pipelines.options import NoEffect
from regard.hf_pipelines.question_answering import QuestionAnsweringPipeline
from regard.hf_pipelines.text_classification import TextClassificationPipeline
from regard.inference.pipeline import Pipeline
from regard.pipelines import load
from regard.tasks.directory import read_tasks

TASKS: dict[str, type[HuggingFacePipeline]] = {
    "translation": TranslationPipeline,
    "summarization": SummarizationPipeline,
    "question-answering": QuestionAnsweringPipeline,
    "text2text-generation": Text2TextGenerationPipeline,
    "text-generation": TextGenerationPipeline,
    "text-classification": TextClassificationPipeline,
}
_ALIASES = {"sentiment-analysis": "text-classification"}
_LANGUAGES = re.compile(r"translation_([^_]+)_to_([^_]+)")
_OTHER = "a model directory has all that belongs to its model"
_MAKING = {
    "framework": NoEffect("models are PyTorch's", ("pt",)),
    "torch_dtype": NoEffect("models compute as they were saved; regard.load has precision", ("auto", torch.float32)),
    "dtype": NoEffect("models compute as they were saved; regard.load has precision", ("auto", torch.float32)),
    "revision": NoEffect("nothing is downloaded, and a directory has no other revisions", ("main",)),
    "model_kwargs": NoEffect(_OTHER, ({},)),
    "pipeline_class": NoEffect("regard.load makes pipelines of tasks of your own", ()),
    "feature_extractor": NoEffect(_OTHER, ()),
    "image_processor": NoEffect(_OTHER, ()),
    "processor": NoEffect(_OTHER, ()),
    "use_fast": NoEffect(),
    "trust_remote_code": NoEffect(),  # no code is loaded whatever it says
    "token": NoEffect(),
    "use_auth_token": NoEffect(),
}
"""Options of `pipeline` that are taken where nothing depends on them."""


def pipeline(
    task: str | None = None,
    model: str | os.PathLike[str] | Pipeline | None = None,
    *,
    config: object = None,
    tokenizer: object = None,
    device: object = None,
    device_map: object = None,
    **options: Any,
) -> Any:
    """Return a pipeline that is called as those of transformers 4 were, and returns what they returned.

    >>> import regard
    >>> translator = regard.pipeline("translation_de_to_en", model="de-en")
    >>> translator("Ich habe Hunger.")
    [{'translation_text': "I'm hungry."}]

    `task` is "translation", "translation_xx_to_yy", "summarization", "question-answering", "text2text-generation",
    "text-generation", "text-classification" or "sentiment-analysis"; without it, it is the model's own. `model` is a
    directory, the name of a model of the package, or what `regard.load` returned; without it, the model of the package
    for the task. Options of calls may be given here too, for every call. An option that would change what is returned,
    and cannot be had, is refused; one that changes nothing here, such as framework="pt", is taken.
    """
    if task is None and model is None:
        raise InputError(f"a task or a model was expected; tasks are {', '.join(TASKS)}")
    for name in [name for name in options if name in _MAKING]:
        _MAKING[name].check(name, options.pop(name))
    name = _task_of(model) if task is None else task
    if (pair := _LANGUAGES.fullmatch(str(name))) is not None:
        options = {"src_lang": pair[1], "tgt_lang": pair[2], **options}
    cls = _pipeline_class("translation" if pair else name)
    made = cls(_loaded(model, name, cls, _device(device, device_map)), name, **options)
    for part, given in (("tokenizer", tokenizer), ("config", config)):
        own = (model, made.tokenizer if part == "tokenizer" else made.pipeline.config)
        if given is not None and not any(given is one or given == one for one in own):
            raise InputError(f"{part}={shown(given)} is not supported: {_OTHER}")
    if model is None and isinstance(made, TranslationPipeline):
        _check_source(made, options.get("src_lang"))
    return made


def set_seed(seed: int) -> None:
    """Seed the generators of Python, NumPy and torch: what is sampled is the same each time."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _pipeline_class(task: str) -> type[HuggingFacePipeline]:
    known = {**TASKS, **{alias: TASKS[name] for alias, name in _ALIASES.items()}}
    if task in known:
        return known[task]
    near = get_close_matches(str(task), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"it is one of {', '.join(known)}, translation_xx_to_yy"
    raise InputError(f"task {shown(task)} is not known; {hint}")


def _task_of(model: str | os.PathLike[str] | Pipeline | None) -> str:
    """Return the name of the task that a model is for."""
    assert model is not None
    kind = model.kind if isinstance(model, Pipeline) else read_tasks(models.find(model))[0].kind
    found = next((name for name, cls in TASKS.items() if kind in cls.kinds), None)
    if found is None:
        raise ModelError(f"the model is for {kind}, for which there is no such pipeline; regard.load loads it")
    return found


def _loaded(
    model: str | os.PathLike[str] | Pipeline | None, task: str, cls: type[HuggingFacePipeline], device: str
) -> Pipeline:
    if isinstance(model, Pipeline):
        if model.kind not in cls.kinds:
            raise ModelError(f"the model is for {model.kind}, not {task}")
        if device != "cpu" and resolve_device(device) != model.device:
            raise InputError(f"device is {device}, and the model is on {model.device} already")
        return model
    if model is None:
        model = _default_model(task, cls)
    loaded: Pipeline = load(model, task=cls.kinds, device=device)
    return loaded


def _default_model(task: str, cls: type[HuggingFacePipeline]) -> str:
    """Return the first model of the package that is for a task."""
    for name in models.names():
        if any(one.kind in cls.kinds for one in read_tasks(models.path_of(name))):
            return name
    raise InputError(f"the package has no model for {task}; name one with model=")


def _check_source(made: TranslationPipeline, language: str | None) -> None:
    """Refuse the package's own model for a language that it was not trained on."""
    languages = made.pipeline.languages
    if language is not None and language not in languages:
        raise InputError(
            f"the package has no model that translates from {language!r}; {made.pipeline.name} is for "
            f"{' and '.join(languages)}; name another with model="
        )


def _device(device: object, device_map: object) -> str:
    """Return a device by regard's name: theirs may be a number, -1 for the CPU."""
    if device is not None and device_map is not None:
        raise InputError("give device or device_map, not both")
    if device_map is not None:
        if device_map != "auto":
            raise InputError(f"device_map={shown(device_map)} is not supported: a model is on one device")
        return "auto"
    if device is None or device == -1:
        return "cpu"
    return f"cuda:{device}" if isinstance(device, int) else str(device)
