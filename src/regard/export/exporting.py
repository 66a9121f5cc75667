"""From a model directory to one of another runtime's: built beside, checked, and only then put in its place."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from regard.acceleration.known import unknown_part
from regard.errors import InputError, ModelError
from regard.export.check_set import check_set
from regard.export.ctranslate2 import CTranslate2, write_ctranslate2
from regard.export.onnx import Onnx, write_onnx
from regard.export.readme import Exported, readme
from regard.export.verification import OtherRuntime, Verification, verify
from regard.files import new_directory
from regard.model import Transformer, TransformerConfig
from regard.tasks.translation import Translator

Runtime = Literal["ctranslate2", "onnx"]
Quantization = Literal["int8"]

_WRITERS: dict[Runtime, Callable[[Translator, Path, bool], None]] = {
    "ctranslate2": write_ctranslate2,
    "onnx": write_onnx,
}
_READERS: dict[Runtime, Callable[[Path, TransformerConfig], OtherRuntime]] = {"ctranslate2": CTranslate2, "onnx": Onnx}


def check_exportable(model: Transformer) -> None:
    """Raise a `ModelError` for what no export computes: a head, or a module that is not regard's own, unchanged.

    A model on another device than the CPU is an `InputError`: its weights are read in this process's memory.
    """
    if model.device.type != "cpu":
        raise InputError(f"a model is exported from the CPU, and this one is on {model.device}; load it on the CPU")
    if (head := model.config.head) is not None:
        raise ModelError(f"only a model that writes a target can be exported: this one has a {head.kind} head")
    if (reason := unknown_part(model)) is not None:
        raise ModelError(f"only a model whose every module is regard's own can be exported: {reason}")


def export(
    pipeline: Translator,
    output: str | os.PathLike[str],
    *,
    to: Runtime,
    quantize: Quantization | None = None,
    pairs: Sequence[tuple[str, str]] | None = None,
    language: str | None = None,
    directory: str | os.PathLike[str] | None = None,
) -> Verification:
    """Write a model for another runtime, and check that it computes there what it computes here.

    It is checked on `pairs` of sources and translations. Without them, it is checked on the test set that the model's
    `directory` holds, or else on sentences that come with regard, for German and English, or on random tokens.
    """
    output = Path(output)
    if output.exists():
        raise InputError(f"{output} already exists; choose another directory")
    check_exportable(pipeline.model)
    if pipeline.precision != "float":
        raise InputError(
            'an export is made from, and compared with, a pipeline in floats: load it with precision="float"'
        )
    checked = check_set(pipeline, pairs, language=language, directory=None if directory is None else Path(directory))
    with new_directory(output) as beside:
        _WRITERS[to](pipeline, beside, quantize == "int8")
        pipeline.source.save(beside / "source-tokenizer.json")
        pipeline.target.save(beside / "tokenizer.json")
        runtime = _READERS[to](beside, pipeline.model.config)
        found = verify(runtime, pipeline, checked, quantized=quantize is not None)
        if found.failure is not None:
            raise ModelError(f"the export is not what the model is: {found.failure}; {output} was not written")
        page = readme(pipeline, Exported(to, quantize is not None, language, checked, found))
        (beside / "README.md").write_text(page, encoding="utf-8")
    return found
