"""A model as two ONNX graphs: one that reads a source, one that writes a token."""

import copy
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data import padded
from regard.errors import InputError, ModelError
from regard.export.position_table import position_table
from regard.layers.attention import MultiHeadAttention
from regard.layers.embeddings import Embedding
from regard.layers.kv_cache import KeyValue
from regard.model import Transformer, TransformerConfig
from regard.ops.attention import repeat_heads
from regard.tasks.translation import Translator

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
_BATCH = 32


class EncoderGraph(nn.Module):
    """From source tokens (B, S) to the keys and values (L, B, G, S, ·) that the decoder's layers look at."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        assert model.encoder is not None
        assert model.decoder is not None
        assert model.source_embedding is not None
        self.embed = _EmbedGraph(model.source_embedding, model.config)
        self.layers, self.norm = model.encoder.layers, model.encoder.final_norm
        self.cross = nn.ModuleList(layer.cross_attention for layer in model.decoder.layers)  # type: ignore[misc]
        self.pad_id = model.config.pad_id

    def forward(self, source_BS: Tensor) -> tuple[Tensor, Tensor]:
        """Encode, and project for each layer of the decoder."""
        x_BSD = self.embed(source_BS, torch.arange(source_BS.size(1)))
        mask_B11S = _padding(source_BS, self.pad_id, x_BSD.dtype)
        layer: Any
        for layer in self.layers:

            def attend(x_BSD: Tensor, attention: MultiHeadAttention = layer.self_attention) -> Tensor:
                return _attended(attention, x_BSD, attention.project_key_value(x_BSD), mask_B11S)

            x_BSD = layer.self_attention_residual(x_BSD, attend)
            x_BSD = layer.feed_forward_residual(x_BSD, layer.feed_forward)
        if self.norm is not None:
            x_BSD = self.norm(x_BSD)
        pairs = [cross.project_key_value(x_BSD) for cross in self.cross]  # type: ignore[operator]
        return torch.stack([key for key, _ in pairs]), torch.stack([value for _, value in pairs])


class DecoderGraph(nn.Module):
    """From a token of each row, its position and the past to the logits of the next one, and the past with it."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        assert model.decoder is not None
        assert model.target_embedding is not None
        self.embed = _EmbedGraph(model.target_embedding, model.config)
        self.layers, self.norm, self.output = model.decoder.layers, model.decoder.final_norm, model.output
        self.pad_id = model.config.pad_id

    def forward(
        self,
        token_B: Tensor,
        position_1: Tensor,
        source_BS: Tensor,
        source_keys: Tensor,
        source_values: Tensor,
        past_keys: Tensor,
        past_values: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Take a step."""
        x_B1D = self.embed(token_B[:, None], position_1)
        mask_B11S = _padding(source_BS, self.pad_id, x_B1D.dtype)
        keys, values = [], []
        layer: Any
        for number, layer in enumerate(self.layers):
            itself, cross = layer.self_attention, layer.cross_attention

            def apply_self_attention(
                x_B1D: Tensor, itself: MultiHeadAttention = itself, number: int = number
            ) -> Tensor:
                new = itself.project_key_value(x_B1D)
                keys.append(torch.cat([past_keys[number], new.key_BGSK], dim=2))
                values.append(torch.cat([past_values[number], new.value_BGSV], dim=2))
                return _attended(itself, x_B1D, KeyValue(keys[-1], values[-1]), None)

            def apply_cross_attention(x_B1D: Tensor, cross: MultiHeadAttention = cross, number: int = number) -> Tensor:
                source = KeyValue(source_keys[number], source_values[number])
                return _attended(cross, x_B1D, source, mask_B11S)

            x_B1D = layer.self_attention_residual(x_B1D, apply_self_attention)
            x_B1D = layer.cross_attention_residual(x_B1D, apply_cross_attention)
            x_B1D = layer.feed_forward_residual(x_B1D, layer.feed_forward)
        if self.norm is not None:
            x_B1D = self.norm(x_B1D)
        return self.output(x_B1D)[:, 0], torch.stack(keys), torch.stack(values)


class _EmbedGraph(nn.Module):
    table: Tensor

    def __init__(self, embedding: Embedding, config: TransformerConfig) -> None:
        super().__init__()
        self.norm, self.scale = embedding.norm, embedding.tokens.scale
        matrix_WD = embedding.tokens.matrix()
        self.matrix = matrix_WD if isinstance(matrix_WD, nn.Parameter) else nn.Parameter(matrix_WD.detach())
        self.register_buffer("table", position_table(embedding, config))

    def forward(self, tokens_BT: Tensor, positions_T: Tensor) -> Tensor:
        x_BTD: Tensor = F.embedding(tokens_BT, self.matrix) * self.scale + self.table[positions_T]
        if self.norm is not None:
            x_BTD = self.norm(x_BTD)
        return x_BTD


def _attended(layer: MultiHeadAttention, x_BTD: Tensor, key_value: KeyValue, mask: Tensor | None) -> Tensor:
    """Return the layer's output over keys and values; `mask` is additive, as graphs have it."""
    query_BHTK = layer.project_query(x_BTD)
    key_BHSK, value_BHSV = (repeat_heads(x_BGSX, layer.num_heads) for x_BGSX in key_value)
    scores_BHTS = query_BHTK @ key_BHSK.mT * layer.scale
    weights_BHTS = (scores_BHTS if mask is None else scores_BHTS + mask).softmax(-1)
    output: Tensor = layer.output((weights_BHTS @ value_BHSV).transpose(1, 2).flatten(2))
    return output


def _padding(source_BS: Tensor, pad_id: int, dtype: torch.dtype) -> Tensor:
    return torch.where(source_BS == pad_id, float("-inf"), 0.0).to(dtype)[:, None, None, :]


def write_onnx(pipeline: Translator, path: Path, quantized: bool) -> None:
    """Write both graphs."""
    _library()
    config = pipeline.model.config
    if config.kind != "encoder-decoder":
        raise InputError(f"the model is {config.kind}; an encoder and a decoder are expected")
    model = copy.deepcopy(pipeline.model).float().eval()
    encoder, decoder = EncoderGraph(model).eval(), DecoderGraph(model).eval()
    source_BS = torch.tensor([[5, 6, 7, 2], [6, 5, 2, config.pad_id]])
    dynamic = torch.export.Dim.DYNAMIC
    with torch.no_grad():
        keys, values = encoder(source_BS)
        past_keys, past_values = (torch.zeros(*x.shape[:3], 3, x.size(4)) for x in (keys, values))
        _export(encoder, (source_BS,), path / ENCODER, ["source"], ["keys", "values"], ({0: dynamic, 1: dynamic},))
        rows = {1: dynamic, 3: dynamic}
        _export(
            decoder,
            (torch.tensor([1, 1]), torch.tensor([3]), source_BS, keys, values, past_keys, past_values),
            path / DECODER,
            ["token", "position", "source", "source_keys", "source_values", "past_keys", "past_values"],
            ["logits", "keys", "values"],
            ({0: dynamic}, None, {0: dynamic, 1: dynamic}, rows, rows, rows, rows),
        )
    if quantized:
        _quantize(path, (config.d_ff or 4 * config.d_model, config.d_model))


def _export(
    graph: nn.Module, inputs: Any, path: Path, names: list[str], outputs: list[str], shapes: tuple[Any, ...]
) -> None:
    with _quietly():
        torch.onnx.export(
            graph,
            inputs,
            path,
            input_names=names,
            output_names=outputs,
            dynamic_shapes=shapes,
            dynamo=True,
            external_data=False,
            verbose=False,
            optimize=True,
        )


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep back what these libraries have to say to their own developers."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _quantize(path: Path, contracting: tuple[int, int]) -> None:
    """Round the weights of both graphs to int8, and what they are multiplied with as they run.

    Weights are in 7 bits: processors without VNNI add two products in 16 bits, which larger ones overflow. Those of
    the shape `contracting`, which make the hidden layer narrow again, stay float32: ONNX Runtime rounds a whole batch
    by one scale, and a few large numbers there leave little of the small ones.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    for name in (ENCODER, DECODER):
        whole = path / f"whole-{name}"
        (path / name).rename(whole)
        graph = onnx.load(whole).graph
        narrow = {weight.name for weight in graph.initializer if tuple(weight.dims) == contracting}
        with _quietly():
            quantize_dynamic(
                whole,
                path / name,
                per_channel=True,
                reduce_range=True,
                weight_type=QuantType.QInt8,
                nodes_to_exclude=[node.name for node in graph.node if narrow.intersection(node.input)],
            )
        whole.unlink()


class Onnx:
    """A model that ONNX Runtime runs."""

    def __init__(self, path: Path, config: TransformerConfig) -> None:
        assert config.bos_id is not None
        assert config.eos_id is not None
        self._pad, self._start, self._end = config.pad_id, config.bos_id, config.eos_id
        options = _library().SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._encoder, self._decoder = (
            _library().InferenceSession(str(path / name), options, providers=["CPUExecutionProvider"])
            for name in (ENCODER, DECODER)
        )

    def greedy(self, sources: Sequence[list[int]], limits: Sequence[int], never: Sequence[int]) -> list[list[int]]:
        """Write the likeliest token again and again, up to so many, and some of them never."""
        found: dict[int, list[int]] = {}
        order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        for first in range(0, len(order), _BATCH):
            chosen = order[first : first + _BATCH]
            steps = self._steps([sources[index] for index in chosen])
            logits_BW = next(steps)
            written: list[list[int]] = [[] for _ in chosen]
            open_rows = set(range(len(chosen)))
            while open_rows:
                logits_BW[:, list(never)] = -np.inf
                words = logits_BW.argmax(1)
                for row in sorted(open_rows):
                    if words[row] == self._end or len(written[row]) >= limits[chosen[row]]:
                        open_rows.discard(row)
                    else:
                        written[row].append(int(words[row]))
                if open_rows:
                    logits_BW = steps.send(words)
            found.update(zip(chosen, written, strict=True))
        return [found[index] for index in range(len(sources))]

    def log_probabilities(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Return log p of each token of given targets, and of their end."""
        found: list[list[float]] = []
        for first in range(0, len(pairs), _BATCH):
            chosen = pairs[first : first + _BATCH]
            steps = self._steps([source for source, _ in chosen])
            logits_BW = next(steps)
            labels = padded([[*target, self._end] for _, target in chosen], self._end).numpy()
            logs: list[list[float]] = [[] for _ in chosen]
            for at in range(labels.shape[1]):
                logs_BW = torch.from_numpy(logits_BW).double().log_softmax(-1)
                for row, (_, target) in enumerate(chosen):
                    if at <= len(target):
                        logs[row].append(float(logs_BW[row, labels[row, at]]))
                if at + 1 < labels.shape[1]:
                    logits_BW = steps.send(labels[:, at])
            found += logs
        return found

    def _steps(self, sources: Sequence[list[int]]) -> Any:
        """Yield the logits of each next token; be sent the tokens."""
        source_BS = padded(sources, self._pad).numpy()
        keys, values = self._encoder.run(None, {"source": source_BS})
        past: list[NDArray[np.float32]] = [x[:, :, :, :0] for x in (keys, values)]
        tokens_B = np.full(len(sources), self._start, dtype=np.int64)
        position = 0
        while True:
            logits_BW, *past = self._decoder.run(
                None,
                {
                    "token": tokens_B.astype(np.int64),
                    "position": np.array([position], dtype=np.int64),
                    "source": source_BS,
                    "source_keys": keys,
                    "source_values": values,
                    "past_keys": past[0],
                    "past_values": past[1],
                },
            )
            tokens_B = yield logits_BW
            position += 1


def _library() -> Any:
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 (torch writes graphs with it)
    except ImportError:
        raise ModelError("onnxruntime or onnxscript is not installed: pip install onnxruntime onnxscript") from None
    return onnxruntime
