"""The decoder behind a search: a model's packed layers, over the past of every row of every sentence."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import InputError
from regard.model import Transformer
from regard.pipeline.linear import Precision, packed_weight
from regard.pipeline.listed import ListedOutput, Words
from regard.pipeline.native_stack import NativeStack
from regard.pipeline.packed import PackedStack
from regard.pipeline.shortlist import Shortlist
from regard.pipeline.state import State
from regard.text import padded

_READ = 32  # sources that are encoded at once


class Engine:
    """A model ready to decode; what is being decoded is in a `Decoding` of it.

    Most weights are packed copies: after a model has changed, it needs a new engine.
    """

    def __init__(self, model: Transformer, precision: Precision = "float", shortlist: Shortlist | None = None) -> None:
        config = model.config
        if config.kind == "encoder-only" or config.bos_id is None or config.eos_id is None:
            raise InputError("the model's config has no decoder, or no bos_id and eos_id; a search needs all of them")
        self.config, self.model, self.precision, self.shortlist = config, model, precision, shortlist
        self.start, self.end = config.bos_id, config.eos_id
        self.encoder = None if model.encoder is None else PackedStack(model.encoder, precision)
        assert model.decoder is not None
        self.decoder = PackedStack(model.decoder, precision)
        self._fast_encoder = None if self.encoder is None else NativeStack.of(self.encoder)
        self.fast_decoder = NativeStack.of(self.decoder)
        """The same layers in one call of our own, where that can be had."""
        bias = model.output.bias
        self.output = packed_weight(model.output.weight.detach(), bias if bias is None else bias.detach(), precision)
        self.dtype = model.output.weight.dtype

    @property
    def longest(self) -> int:
        """How many tokens a target may have: the start takes a position too, and a learned table has an end."""
        config = self.config
        return config.max_positions - 1 if config.positions == "learned" else 10**9

    def encode(self, source_BS: Tensor) -> tuple[Tensor, Tensor]:
        """Give the encoder's states of all tokens that are not padding, (R, D), and which those are, (B, S)."""
        assert self.model.source_embedding is not None
        assert self.encoder is not None
        x_BSD = self.model.source_embedding(source_BS)
        real_BS = source_BS != self.config.pad_id
        if self._fast_encoder is not None:
            return self._fast_encoder.encode(x_BSD[real_BS], real_BS.sum(1)), real_BS
        return self.encoder.encode(x_BSD, real_BS)[real_BS], real_BS

    def embed(self, tokens_BN: Tensor, positions_B: NDArray[np.int64]) -> Tensor:
        """Give the input (R, D) of the decoder for one token in each row."""
        assert self.model.target_embedding is not None
        embedding = self.model.target_embedding
        B, N = tokens_BN.shape
        x_BND = F.embedding(tokens_BN, embedding.tokens.weight).mul_(embedding.tokens.scale)
        if embedding.positions is not None:
            x_BND += embedding.positions(torch.from_numpy(positions_B), int(positions_B.max()) + 1)[:, None]
        if embedding.norm is not None:
            x_BND = embedding.norm(x_BND)
        return x_BND.view(B * N, -1)

    def logits(self, x_RD: Tensor) -> Tensor:
        """Give the logits (R, W) of the decoder's states."""
        return self.output(x_RD)


class Decoding:
    """Sentences that are being decoded, N rows each."""

    def __init__(
        self,
        engine: Engine,
        sources: Sequence[Sequence[int]],
        rows: int,
        *,
        attention: bool = False,
        words: Sequence[Words] | None = None,
    ) -> None:
        """Get ready for sources; `words` are those that each may become, or all."""
        self._engine, self._sources, self._words = engine, sources, words
        self._listed = None if words is None else ListedOutput(engine.output, engine.config.vocab_size)
        self._attention_BNS: Tensor | None = None
        # The weights themselves are something that only the packed layers can give.
        self._wants_attention = attention
        self._layers = engine.decoder if attention or engine.fast_decoder is None else engine.fast_decoder
        self._state = State(rows, *engine.decoder.widths, engine.dtype)

    def admit(self, numbers: Sequence[int]) -> Tensor:
        """Encode sentences, and let them in behind those that are there; give the logits (B, W) of their first token.

        All rows of a sentence start from the same token, so that one of them is computed and is the past of all.
        """
        engine, state = self._engine, self._state
        sources = [self._sources[number] for number in numbers]
        pad = engine.config.pad_id
        places = state.admit([sum(token != pad for token in source) for source in sources])
        if state.source:
            self._read(sources, places.start)
        positions_B = state.positions_B[places]
        x_RD = engine.embed(torch.full((len(numbers), 1), engine.start), positions_B)
        state.writers_BNT[places, :, 0] = 0
        x_RD = self._step(x_RD, places, 1)
        state.positions_B[places] = 1
        if self._listed is not None and self._words is not None:
            self._listed.admit([self._words[number] for number in numbers])
        return self._logits(x_RD, places)

    def _read(self, sources: Sequence[Sequence[int]], before: int) -> None:
        """Encode sources, and project them for each layer: a few at a time, so that short ones are not padded much."""
        for first in range(0, len(sources), _READ):
            tokens_BS = padded(sources[first : first + _READ], self._engine.config.pad_id)
            states_RD, real_BS = self._engine.encode(tokens_BS)
            # What is real of a source stands side by side, whatever padding is in it.
            places_B1 = torch.arange(before + first, before + first + tokens_BS.size(0))[:, None]
            at_R = (places_B1 * self._state.source[0].size(1) + real_BS.cumsum(1) - 1)[real_BS]
            for source, layer in zip(self._state.source, self._engine.decoder.layers, strict=True):
                source.view(-1, source.size(2)).index_copy_(0, at_R, layer.project_source(states_RD))

    def step(self, tokens_BN: Tensor) -> Tensor:
        """Take the next token of each row in; give the logits (B, N, W) of the one after it."""
        B, N = tokens_BN.shape
        self._state.begin_step()
        x_RD = self._engine.embed(tokens_BN, self._state.positions_B)
        x_RD = self._step(x_RD, slice(0, B), N)
        self._state.end_step()
        return self._logits(x_RD, slice(0, B)).view(B, N, -1)

    def _step(self, x_RD: Tensor, places: slice, rows: int) -> Tensor:
        record: list[Tensor] | None = [] if self._wants_attention else None
        x_RD = self._layers.step(x_RD, self._state, places, rows, record)
        self._attention_BNS = record[-1] if record else None
        return x_RD

    def _logits(self, x_RD: Tensor, places: slice) -> Tensor:
        return self._engine.logits(x_RD) if self._listed is None else self._listed(x_RD, places)

    def attention(self) -> Tensor:
        """Give what the last step attended to in the source, the mean of the heads of the last layer: (B, N, S)."""
        assert self._attention_BNS is not None, "attention was not asked for"
        return self._attention_BNS

    def reorder(self, parents_BN: NDArray[np.int64]) -> None:
        """Let each row go on from another row of its sentence: its past is now that row's."""
        self._state.reorder(parents_BN)

    def keep(self, places: Sequence[int]) -> None:
        """Keep the sentences at these places, in this order."""
        self._state.keep(places)
        if self._listed is not None:
            self._listed.keep(places)
