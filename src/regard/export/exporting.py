"""From a model directory to one of another runtime's: built beside, checked, and only then put in its place."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from regard.errors import InputError, ModelError
from regard.export.ctranslate2 import CTranslate2, write_ctranslate2
from regard.export.onnx import Onnx, write_onnx
from regard.export.verification import OtherRuntime, Verification, verify
from regard.files import new_directory
from regard.model import TransformerConfig
from regard.pipeline import Pipeline

Runtime = Literal["ctranslate2", "onnx"]
Quantization = Literal["int8"]

_WRITERS: dict[Runtime, Callable[[Pipeline, Path, bool], None]] = {"ctranslate2": write_ctranslate2, "onnx": write_onnx}
_READERS: dict[Runtime, Callable[[Path, TransformerConfig], OtherRuntime]] = {"ctranslate2": CTranslate2, "onnx": Onnx}


def export(
    pipeline: Pipeline,
    output: Path,
    *,
    to: Runtime,
    quantize: Quantization | None = None,
    pairs: Sequence[tuple[str, str]],
    language: str | None = None,
) -> Verification:
    """Write a model for another runtime, and check on sources and their translations that it does what ours does."""
    if output.exists():
        raise InputError(f"{output} is there already; choose another directory")
    if not pairs:
        raise InputError("there are no sentences to check the export on")
    if pipeline.precision != "float":
        raise InputError("an export is made from, and compared with, a pipeline in floats: load it so")
    with new_directory(output) as beside:
        _WRITERS[to](pipeline, beside, quantize == "int8")
        pipeline.source.save(beside / "source-tokenizer.json")
        pipeline.target.save(beside / "tokenizer.json")
        found = verify(
            _READERS[to](beside, pipeline.model.config), pipeline, pairs, language, quantized=quantize is not None
        )
        if found.failure is not None:
            raise ModelError(f"the export is not what the model is: {found.failure}; {output} was not written")
        (beside / "README.md").write_text(_readme(to, quantize, found), encoding="utf-8")
    return found


def _readme(to: Runtime, quantize: Quantization | None, found: Verification) -> str:
    how = {
        "ctranslate2": "Load it with `ctranslate2.Translator(DIR)`. Sources are the tokens of `source-tokenizer.json`, "
        "the language's tag before them and `</s>` behind.",
        "onnx": "`encoder.onnx` turns source tokens into the keys and values of every decoder layer; `decoder.onnx` "
        "takes a token, its position and the past, and gives logits and the past with it. Start with `<s>` and a past "
        "of length 0.",
    }[to]
    weights = "8-bit integers" if quantize else "32-bit floats"
    return f"# For {to}, in {weights}\n\nWritten by `regard export`.\n{how}\n\n## Checked\n\n{found.text}\n"
