"""The Transformer: encode, decode, and the two together."""

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.layers import Decoder, DecoderCache, Embedding, Encoder, Pointer, SourceCache
from regard.layers.embeddings import check_tokens
from regard.layers.kv_cache import Rows, on_host
from regard.layers.positions.randomized import random_positions
from regard.model.build import build_decoder, build_embedding, build_encoder, build_output, build_pointer
from regard.model.config import TransformerConfig
from regard.model.describe import describe
from regard.model.directory import (
    SavedModel,
    check_build,
    check_model,
    check_modules,
    common_type,
    load_tensors,
    read_model_directory,
    write_model_directory,
)
from regard.model.initialization import NoInitialization, initialize
from regard.model.undescribed import undescribed_modules
from regard.ops import Mask, padding_mask
from regard.ops.masks import as_mask


class Memory(NamedTuple):
    """The encoder's output g_{1:T′}, and the mask of positions that are not padding."""

    states_BSD: Tensor
    mask: Tensor


class CopiedMemory(NamedTuple):
    """The same with the tokens of the source, for a model that copies from it; it goes wherever a `Memory` goes."""

    states_BSD: Tensor
    mask: Tensor
    tokens_BS: Tensor


class Transformer(nn.Module):
    """The model of "Attention Is All You Need", and its variations by configuration.

    >>> import torch
    >>> from regard import Transformer, TransformerConfig
    >>> model = Transformer(TransformerConfig.preset("tiny", vocab_size=100))
    >>> source, target = torch.randint(1, 100, (2, 7)), torch.randint(1, 100, (2, 5))
    >>> model(source, target).shape
    torch.Size([2, 5, 100])

    Sequences are padded on the right with the configuration's `pad_id`. A target's padding needs no mask: it is on the
    right, and the decoder is causal.
    """

    source_embedding: Embedding | None
    encoder: Encoder | None
    target_embedding: Embedding | None
    decoder: Decoder | None
    output: Any
    """An `OutputProjection`, or the head of an encoder alone."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        has_encoder, has_decoder = config.encoder_layers > 0, config.decoder_layers > 0
        self.source_embedding = build_embedding(config, config.source_size) if has_encoder else None
        self.encoder = build_encoder(config) if has_encoder else None
        shares_source = config.shared_embeddings in ("all", "source-target")
        tied_to = self.source_embedding if shares_source else None
        self.target_embedding = build_embedding(config, config.vocab_size, tied_to) if has_decoder else None
        self.decoder = build_decoder(config, self.encoder) if has_decoder else None
        self.output = build_output(config, self._last_embedding)
        self.pointer = build_pointer(config)
        initialize(self)

    def encode(
        self, source: Tensor, source_mask: Mask | Tensor | None = None, *, costs: list[Tensor] | None = None
    ) -> Memory:
        """Encode tokens (B, S). Padding is masked, unless another mask of the keys, (B, 1, 1, S), is given.

        What the positions cost beyond the loss (adaptive computation time), BS, is appended to `costs`.
        """
        if self.encoder is None or self.source_embedding is None:
            raise InputError("this model is a decoder alone (encoder_layers is 0): it has nothing to encode with")
        x_BSD, at = self._embedded(self.source_embedding, source)
        mask = padding_mask(source, self.config.pad_id) if source_mask is None else _key_mask(source_mask, source)
        states_BSD = self.encoder(x_BSD, mask, **at, **self._counting(costs))
        if self.pointer is None:
            return Memory(states_BSD, mask)
        memory: Any = CopiedMemory(states_BSD, mask, source)
        return cast(Memory, memory)

    def decode(
        self,
        target: Tensor,
        memory: Memory | None = None,
        *,
        cache: DecoderCache | None = None,
        lengths: Rows | None = None,
        record: list[Tensor] | None = None,
        costs: list[Tensor] | None = None,
    ) -> Tensor:
        """Return the decoder's states (B, T, D), h_{1:T}, for target tokens (B, T).

        With copying, weights over the source and its tokens stand behind them: (B, T, D + 2S).

        With a cache from `start_cache`, the target is what comes after the tokens that were decoded with it before,
        and the memory is the one that it was started with; no gradient is kept. `lengths` then tells how many tokens of
        each row are real, where rows differ. Each layer's weights BHTS over the source are appended to `record`, and
        what the positions cost beyond the loss, BT, to `costs`.
        """
        decoder, embedding = self._decoder_parts()
        states: Tensor
        if cache is not None:
            if memory is not None:
                raise InputError("decode was given a memory and a cache; a cache has the memory it was started with")
            check_tokens(target)
            if self.pointer is not None and cache.copied is None:
                raise InputError("a model that copies decodes with a cache from its own `start_cache`")
            cache.expect(target.size(0), target.size(1), lengths)
            with torch.no_grad():  # what a cache keeps carries no gradient, so nothing that reads it can
                counts = None if lengths is None else on_host(lengths)
                x_BTD = embedding(target, cache.past.offset, counts)
                states = decoder(x_BTD, cache=cache, record=record)
                if self.pointer is not None:
                    states = self.pointer(states, cache.copied)
        elif lengths is not None:
            raise InputError("decode was given lengths without a cache; a target's padding needs none")
        else:
            x_BTD, at = self._embedded(embedding, target)
            states = decoder(x_BTD, *self._checked(memory), record=record, **at, **self._counting(costs))
            if self.pointer is not None:
                states = self.pointer(states, self._copied(self.pointer, memory))
        return states

    @torch.no_grad()
    def cross_attention(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the weights with which each target token (B, T) attends to each source token (B, S): (L, B, H, T, S).

        >>> import torch
        >>> from regard import Transformer, TransformerConfig
        >>> model = Transformer(TransformerConfig.preset("tiny", vocab_size=100)).eval()
        >>> weights = model.cross_attention(torch.randint(1, 100, (2, 7)), torch.randint(1, 100, (2, 5)))
        >>> weights.shape  # 4 layers of 4 heads
        torch.Size([4, 2, 4, 5, 7])
        """
        if self.config.kind != "encoder-decoder":
            raise InputError(f"a model that is {self.config.kind} has no attention from a target to a source")
        record: list[Tensor] = []
        self.decode(target, self.encode(source), record=record)
        return torch.stack(record)

    def start_cache(self, memory: Memory | None = None, *, beams: int = 1) -> DecoderCache:
        """Start decoding step by step from this memory, or from nothing where the model is a decoder alone.

        With `beams`, each source has so many rows of targets, next to one another.

        >>> import torch
        >>> from regard import Transformer, TransformerConfig
        >>> model = Transformer(TransformerConfig.preset("tiny", vocab_size=100)).eval()
        >>> source, target = torch.randint(1, 100, (2, 7)), torch.randint(1, 100, (2, 5))
        >>> cache = model.start_cache(model.encode(source))
        >>> steps = [model.logits(model.decode(target[:, t : t + 1], cache=cache)) for t in range(5)]
        >>> torch.allclose(torch.cat(steps, dim=1), model(source, target), atol=1e-5)
        True
        """
        decoder, _ = self._decoder_parts()
        cache = decoder.start_cache(*self._checked(memory), beams=beams)
        if self.pointer is not None:
            cache.copied = self._copied(self.pointer, memory, beams)
        return cache

    def logits(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits (B, T, W) over the vocabulary for the states of the last stack, or those of the head.

        A head needs the mask of a `Memory` too: `model.logits(*model.encode(source))`.
        """
        logits: Tensor = self.output(states) if self.config.head is None else self.output(states, mask)
        return logits

    def forward(self, source: Tensor | None = None, target: Tensor | None = None) -> Tensor:
        """Return the logits: of the target where there are two stacks, of the one sequence where there is one.

        With a head they are its own: of labels (B, Y), or of where a span starts and ends (B, S, 2).
        """
        kind = self.config.kind
        if kind == "encoder-decoder":
            if source is None or target is None:
                raise InputError("an encoder-decoder takes a source and a target; one of them is missing")
            return self.logits(self.decode(target, self.encode(source)))
        if (source is None) == (target is None):
            raise InputError(
                f"a model that is {kind} takes one sequence; it was given {'none' if source is None else 'two'}"
            )
        tokens = target if source is None else source
        assert tokens is not None
        if kind == "decoder-only":
            return self.logits(self.decode(tokens))
        memory = self.encode(tokens)
        return self.logits(memory.states_BSD, None if self.config.head is None else memory.mask)

    def describe(self) -> str:
        """Return tables of this model: every symbol, its meaning, its shape and its parameters."""
        return describe(self.config, dict(self.named_parameters()))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model directory: `config.json` and `model.safetensors`, whole or not at all."""
        check_model(self)
        # Shared matrices come once, under the first of their names.
        tensors = {name: parameter.detach() for name, parameter in self.named_parameters()}
        write_model_directory(
            Path(path), SavedModel(self.config, tensors, undescribed_modules(self, plain_model(self.config)))
        )

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        at_least: torch.dtype | None = None,
        build: Callable[[TransformerConfig], Self] | None = None,
    ) -> Self:
        """Read a model directory, ready to use: in evaluation mode, in the widest precision it was saved in.

        `at_least` widens it further, `torch.float32` to compute with what was saved as float16. `build` makes the model
        of a config where it has modules that the config does not describe; without it, or where it makes other modules
        than those that were saved, such a directory is refused.
        """
        config, tensors, modules = read_model_directory(Path(path))
        check_build(path, modules, build)
        make = cls if build is None else build
        saved = common_type(tensors, source=path)
        with NoInitialization(), torch.device("meta"):  # sizes are compared before memory is allocated
            sized = make(config)
        check_model(sized)
        if modules:
            check_modules(path, modules, undescribed_modules(sized, plain_model(config)))
        load_tensors(sized, tensors, source=path)
        with NoInitialization():
            model = make(config).to(saved if at_least is None else torch.promote_types(saved, at_least))
        load_tensors(model, tensors, source=path)
        return model.eval()

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    @property
    def _last_embedding(self) -> Embedding:
        last = self.target_embedding or self.source_embedding
        assert last is not None, "a config has at least one stack"
        return last

    def _decoder_parts(self) -> tuple[Decoder, Embedding]:
        if self.decoder is None or self.target_embedding is None:
            raise InputError("this model is an encoder alone (decoder_layers is 0): it has nothing to decode with")
        return self.decoder, self.target_embedding

    def _counting(self, costs: list[Tensor] | None) -> dict[str, list[Tensor]]:
        return {} if costs is None or self.config.sharing.act is None else {"costs": costs}

    def _embedded(self, embedding: Embedding, tokens: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """Return the embedded tokens of whole sequences, and the positions for a stack if they are not 0, 1, 2 …."""
        end = self.config.random_positions
        if end is None or not self.training:
            return embedding(tokens), {}
        check_tokens(tokens)
        sampled = random_positions(tokens, self.config.pad_id, end)
        # Layers do not need positions that are added to the embeddings.
        at = {"positions": sampled.positions} if embedding.positions is None else {}
        return embedding(tokens, positions=sampled), at

    def _copied(self, pointer: Pointer, memory: object, beams: int = 1) -> SourceCache:
        if not isinstance(memory, CopiedMemory):
            raise InputError(
                "a model that copies decodes from what its own `encode` returned, with the source's tokens"
            )
        return pointer.source(memory.states_BSD, memory.mask, memory.tokens_BS, beams=beams)

    def _checked(self, memory: Memory | None) -> tuple[Tensor | None, Tensor | None]:
        if (memory is None) != (self.encoder is None):
            given = "no memory" if memory is None else "a memory"
            raise InputError(f"a model that is {self.config.kind} was given {given} to decode from")
        return (None, None) if memory is None else (memory.states_BSD, memory.mask)


def _key_mask(mask: Mask | Tensor, source: Tensor) -> Tensor:
    B, S = source.shape
    dense = as_mask(mask).dense(1, S, source.device)
    if dense.dim() != 4 or dense.shape[1:] != (1, 1, S) or dense.size(0) not in (1, B):
        raise InputError(f"a source mask has shape ({B}, 1, 1, {S}), one truth a token; got {tuple(dense.shape)}")
    return dense.expand(B, 1, 1, S)


@lru_cache(maxsize=4)
def plain_model(config: TransformerConfig) -> Transformer:
    """Return the model that a configuration describes, on the meta device, to compare with: the same one each time."""
    with NoInitialization(), torch.device("meta"):
        return Transformer(config)
