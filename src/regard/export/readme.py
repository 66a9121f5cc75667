"""The README of an exported model: a program that translates with it, and what was checked."""

from dataclasses import dataclass
from typing import Literal

from regard.export.check_set import CheckSet, built_in
from regard.export.verification import Verification
from regard.tasks.translation import Translator

_CTRANSLATE2 = """\
A source is the tokens of a text{tag_in_words} and `{end}` at the end.
This translates, in this directory:

```python
import ctranslate2
import tokenizers

source = tokenizers.Tokenizer.from_file("source-tokenizer.json")
target = tokenizers.Tokenizer.from_file("tokenizer.json")
translator = ctranslate2.Translator(".")

tokens = source.encode({text!r}).tokens
result = translator.translate_batch([[{tag}*tokens, {end!r}]], beam_size={beam}, max_decoding_length={limit})[0]
print(target.decode([target.token_to_id(token) for token in result.hypotheses[0]]))
```
"""

_ONNX = """\
A source is the tokens of a text{tag_in_words} and `{end}` at the end.
`encoder.onnx` reads it once; `decoder.onnx` writes one token at a time, from the token before it and the keys and
values of all others. This translates, in this directory:

```python
import numpy as np
import onnxruntime
import tokenizers

source = tokenizers.Tokenizer.from_file("source-tokenizer.json")
target = tokenizers.Tokenizer.from_file("tokenizer.json")
encoder = onnxruntime.InferenceSession("encoder.onnx")
decoder = onnxruntime.InferenceSession("decoder.onnx")

ids = np.array([[{tag}*source.encode({text!r}).ids, {end_id}]])
source_keys, source_values = encoder.run(["keys", "values"], {{"source": ids}})
keys, values = source_keys[:, :, :, :0], source_values[:, :, :, :0]  # nothing is written yet
token, written = {start_id}, []
while len(written) < {limit}:
    logits, keys, values = decoder.run(["logits", "keys", "values"], {{
        "token": np.array([token]), "position": np.array([len(written)]), "source": ids,
        "source_keys": source_keys, "source_values": source_values, "past_keys": keys, "past_values": values,
    }})
    logits[:, {never}] = -np.inf  # special tokens that no text is made of
    token = int(logits[0].argmax())  # greedy
    if token == {end_id}:
        break
    written.append(token)
print(target.decode(written))
```

| graph | input | type | shape |
| --- | --- | --- | --- |
| encoder | `source` | int64 | (B, S), padded with {pad_id} |
| decoder | `token` | int64 | (B), the token before; {start_id} at the start |
| decoder | `position` | int64 | (1), its position, from 0 |
| decoder | `source` | int64 | (B, S), as the encoder's |
| decoder | `source_keys`, `source_values` | float32 | what the encoder gave |
| decoder | `past_keys`, `past_values` | float32 | {past}; T is 0 at the start |

| graph | output | type | shape |
| --- | --- | --- | --- |
| encoder | `keys`, `values` | float32 | {source} |
| decoder | `logits` | float32 | (B, {vocabulary}) |
| decoder | `keys`, `values` | float32 | the past with this token: {next} |

B sentences, S source tokens, T target tokens that are written already.
"""


@dataclass(frozen=True)
class Exported:
    """What is told of an export."""

    runtime: Literal["ctranslate2", "onnx"]
    quantized: bool
    language: str | None
    checked: CheckSet
    found: Verification


def readme(pipeline: Translator, exported: Exported) -> str:
    """Return the page."""
    weights = "8-bit integers" if exported.quantized else "32-bit floats"
    how = {"ctranslate2": _CTRANSLATE2, "onnx": _ONNX}[exported.runtime].format(**_values(pipeline, exported))
    return (
        f"# For {exported.runtime}, in {weights}\n\nWritten by `regard export`.\n"
        f"{how}\n## Checked\n\n{exported.found.text}\n"
    )


def _values(pipeline: Translator, exported: Exported) -> dict[str, object]:
    config = pipeline.model.config
    first = exported.checked.sources[0]
    tagged = bool(pipeline.languages)
    language, text = exported.language, pipeline.source.decode(first[int(tagged) : -1])
    if tagged and language is None:
        language = pipeline.source.token(first[0])[2:-1]
    if known := built_in(pipeline, language):
        text = known[1][0]  # short, and everyone knows it
    tag = f"<2{language}>"
    in_ids = exported.runtime == "onnx"
    heads, widths = config.num_kv_heads or config.num_heads, _widths(pipeline)
    layers = config.decoder_layers

    def shape(length: str) -> str:
        keys, values = (f"({layers}, B, {heads}, {length}, {width})" for width in widths)
        return keys if keys == values else f"{keys} and {values}"

    return dict(
        text=text,
        tag="" if not tagged else f"{pipeline.source.number(tag)}, " if in_ids else f"{tag!r}, ",
        tag_in_words=f", the tag of the target language before them (`{tag}`)" if tagged else "",
        end=pipeline.source.token(pipeline.source_end),
        end_id=pipeline.source_end,
        start_id=config.bos_id,
        pad_id=config.pad_id,
        never=sorted({*pipeline.target.special} - {pipeline.source_end}),
        beam=pipeline.settings.beam,
        limit=256 if config.longest is None else min(256, config.longest - 1),
        vocabulary=config.vocab_size,
        past=shape("T"),
        source=shape("S"),
        next=shape("T + 1"),
    )


def _widths(pipeline: Translator) -> tuple[int, int]:
    config = pipeline.model.config
    width = config.d_model // config.num_heads
    return config.d_k or width, config.d_v or width
