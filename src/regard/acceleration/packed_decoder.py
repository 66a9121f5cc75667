"""The decoder behind a search: a model's packed layers, over the past of every row of every sentence."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.acceleration.backend import Backend
from regard.acceleration.beam_cache import State
from regard.acceleration.kernel_layers import KernelStack
from regard.acceleration.packed_embedding import Ints, PackedEmbedding
from regard.acceleration.packed_layers import PackedStack
from regard.acceleration.packed_linear import DecodingPrecision, packed_weight
from regard.acceleration.shortlist_projection import ShortlistProjection
from regard.data import padded
from regard.decoding.shortlist import Shortlist, Words
from regard.model import Transformer

_READ = 32  # sources that are encoded at once
_SEGMENT = 2048  # positions of a long source that are encoded at once, at least
_LOGITS = 512  # positions of prefixes whose logits are in memory at a time


class PackedBackend(Backend):
    """A model ready to decode; what is being decoded is in the `PackedDecoder` that it makes.

    Most weights are packed copies: after a model has changed, it needs a new backend.
    """

    def __init__(
        self, model: Transformer, precision: DecodingPrecision = "float", shortlist: Shortlist | None = None
    ) -> None:
        super().__init__(model, shortlist)
        self.precision = precision
        self.encoder = None if model.encoder is None else PackedStack(model.encoder, precision)
        assert model.decoder is not None
        self.decoder = PackedStack(model.decoder, precision)
        self._fast_encoder = None if self.encoder is None else KernelStack.of(self.encoder)
        self.fast_decoder = KernelStack.of(self.decoder)
        """The same layers in one call of our own, where that can be had."""
        self._embed_source = None if model.source_embedding is None else PackedEmbedding(model.source_embedding)
        assert model.target_embedding is not None
        self.embed = PackedEmbedding(model.target_embedding)
        bias = model.output.bias
        self.output = packed_weight(model.output.matrix().detach(), bias if bias is None else bias.detach(), precision)
        """From the decoder's states (R, D) to logits (R, W)."""
        self.dtype = model.output.weight.dtype
        kind = "int8" if precision == "int8" else str(self.dtype).removeprefix("torch.")
        self.name = f"packed {kind} decoder" + (", by kernels" if self.fast_decoder is not None else "")
        self.uses_kernels = self.fast_decoder is not None

    @property
    def decoder_type(self) -> "type[PackedDecoder]":
        """The decoder over packed layers."""
        return PackedDecoder

    def read(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Ints]:
        """Return the encoder's states (R, D) of all tokens but padding, and how many of them each source has."""
        assert self._embed_source is not None
        assert self.encoder is not None
        rows = [np.array(source, dtype=np.int64) for source in sources]
        real = [row != self.config.pad_id for row in rows]
        lengths_B = np.array([some.sum() for some in real], dtype=np.int64)
        tokens_R = np.concatenate([row[some] for row, some in zip(rows, real, strict=True)])
        self._embed_source.check(tokens_R)
        x_RD = self._embed_source(tokens_R, np.concatenate([np.flatnonzero(some) for some in real]))
        reach = self.encoder.reach
        if reach is None or lengths_B.max() <= max(_SEGMENT, 4 * reach):
            return self._encoded(x_RD, lengths_B), lengths_B
        return self._encoded_in_segments(x_RD, lengths_B, reach), lengths_B

    def _encoded(self, x_RD: Tensor, lengths_B: Ints) -> Tensor:
        """Return the states (R, D) of sources of these lengths, whose embeddings may be written over."""
        assert self.encoder is not None
        if self._fast_encoder is not None:
            return self._fast_encoder.encode(x_RD, lengths_B)
        real_BS = torch.arange(int(lengths_B.max())) < torch.from_numpy(lengths_B)[:, None]
        x_BSD = x_RD.new_zeros(*real_BS.shape, x_RD.size(1))
        x_BSD[real_BS] = x_RD
        return self.encoder.encode(x_BSD, real_BS)[real_BS]

    def _encoded_in_segments(self, x_RD: Tensor, lengths_B: Ints, reach: int) -> Tensor:
        """Return the same, a segment at a time, each with the positions to both sides that its states depend on.

        What the layers need for a segment does not grow with the source.
        """
        states_RD, size = torch.empty_like(x_RD), max(_SEGMENT, 4 * reach)
        counts = lengths_B.tolist()
        for x_SD, states_SD in zip(torch.split(x_RD, counts), torch.split(states_RD, counts), strict=True):
            for first in range(0, len(x_SD), size):
                before = min(first, reach)
                some_SD = x_SD[first - before : first + size + reach].clone()
                encoded_SD = self._encoded(some_SD, np.array([len(some_SD)]))
                states_SD[first : first + size] = encoded_SD[before : before + size]
        return states_RD


class PackedDecoder:
    """Sentences that are being decoded, N rows each."""

    def __init__(
        self,
        backend: PackedBackend,
        sources: Sequence[Sequence[int]],
        rows: int,
        *,
        attention: bool = False,
        words: Sequence[Words] | None = None,
    ) -> None:
        """Get ready for sources; `words` are those that each may become, or all."""
        self._backend, self._sources, self._words = backend, sources, words
        self._listed = None if words is None else ShortlistProjection(backend.output, backend.config.vocab_size)
        self._attention_BNS: Tensor | None = None
        # The weights themselves are something that only the packed layers can give.
        self._wants_attention = attention
        self._layers = backend.decoder if attention or backend.fast_decoder is None else backend.fast_decoder
        # They mask what nobody has written, and 0 times what is not a number is not a number. Kernels never look there.
        self._state = State(rows, *backend.decoder.widths, backend.dtype, zeroed=self._layers is backend.decoder)

    def admit(self, numbers: Sequence[int]) -> Tensor:
        """Encode sentences, and let them in behind those that are there; give the logits (B, W) of their first token.

        All rows of a sentence start from the same token, so that one of them is computed and is the past of all.
        """
        state = self._state
        places = self._take_in(numbers, [0] * len(numbers))
        x_RD = self._backend.embed(np.full(len(numbers), self._backend.start), state.positions_B[places])
        state.ancestors_BNT[places, :, 0] = 0
        x_RD = self._step(x_RD, places, 1)
        state.positions_B[places] = 1
        return self._logits(x_RD, places)

    def prefill(self, numbers: Sequence[int], prefixes: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Encode sentences, and let them in with what they start with, in one forward pass.

        Return the logits (B, W) of the first token after that, and the log-probabilities (B) of the prefixes.
        """
        backend, rows = self._backend, [[self._backend.start, *prefix] for prefix in prefixes]
        places, tokens_BT = self._take_in(numbers, [*map(len, rows)]), padded(rows, backend.config.pad_id)
        (B, T), tokens_R = tokens_BT.shape, tokens_BT.numpy().ravel()
        backend.embed.check(tokens_R)
        x_RD = backend.embed(tokens_R, np.tile(np.arange(T), B))
        states_BTD = backend.decoder.prefill(x_RD, self._state, places).view(B, T, -1)
        counts_B = torch.tensor([len(prefix) for prefix in prefixes])
        logs_B, step = torch.zeros(B, dtype=torch.float64), max(1, _LOGITS // B)
        for first in range(0, T - 1, step):
            some_BTD, next_BT = states_BTD[:, first : min(first + step, T - 1)], tokens_BT[:, first + 1 :][:, :step]
            logits_BTW = self._logits(some_BTD.flatten(0, 1), places).view(*next_BT.shape, -1)
            logs_BT = logits_BTW.log_softmax(-1).gather(2, next_BT[:, :, None])[:, :, 0].double()
            real_BT = torch.arange(first, first + next_BT.size(1)) < counts_B[:, None]
            logs_B += logs_BT.masked_fill(~real_BT, 0.0).sum(1)
        return self._logits(states_BTD[torch.arange(B), counts_B], places), logs_B

    def _take_in(self, numbers: Sequence[int], written: Sequence[int]) -> slice:
        """Encode sentences, and make places for them and for what is written of each."""
        sources, pad = [self._sources[number] for number in numbers], self._backend.config.pad_id
        places = self._state.admit([sum(token != pad for token in source) for source in sources], written)
        if self._state.source:
            self._read(sources, places.start)
        if self._listed is not None and self._words is not None:
            self._listed.admit([self._words[number] for number in numbers])
        return places

    def _read(self, sources: Sequence[Sequence[int]], before: int) -> None:
        """Encode sources, and project them for each layer: a few at a time, so that short ones are not padded much."""
        for first in range(0, len(sources), _READ):
            states_RD, lengths_B = self._backend.read(sources[first : first + _READ])
            starts_B = np.cumsum(lengths_B) - lengths_B
            places_B = np.arange(before + first, before + first + len(lengths_B)) * self._state.source[0].size(1)
            at_R = torch.from_numpy(np.arange(len(states_RD)) + np.repeat(places_B - starts_B, lengths_B))
            pieces = [(at_R, states_RD)]
            if len(at_R) > _SEGMENT:
                pieces = list(zip(torch.split(at_R, _SEGMENT), torch.split(states_RD, _SEGMENT), strict=True))
            for source, layer in zip(self._state.source, self._backend.decoder.layers, strict=True):
                for at, some_RD in pieces:
                    source.view(-1, source.size(2)).index_copy_(0, at, layer.project_source(some_RD))

    def step(self, tokens_BN: Tensor) -> Tensor:
        """Take the next token of each row in; give the logits (B, N, W) of the one after it."""
        B, N = tokens_BN.shape
        self._state.begin_step()
        x_RD = self._backend.embed(tokens_BN.numpy().ravel(), np.repeat(self._state.positions_B, N))
        x_RD = self._step(x_RD, slice(0, B), N)
        self._state.end_step()
        return self._logits(x_RD, slice(0, B)).view(B, N, -1)

    def _step(self, x_RD: Tensor, places: slice, rows: int) -> Tensor:
        record: list[Tensor] | None = [] if self._wants_attention else None
        x_RD = self._layers.step(x_RD, self._state, places, rows, record)
        self._attention_BNS = record[-1] if record else None
        return x_RD

    def _logits(self, x_RD: Tensor, places: slice) -> Tensor:
        return self._backend.output(x_RD) if self._listed is None else self._listed(x_RD, places)

    def attention(self) -> Tensor:
        """Return what the last step attended to in the source, the mean of the heads of the last layer: (B, N, S)."""
        assert self._attention_BNS is not None, "attention was not asked for"
        return self._attention_BNS

    def reorder(self, parents_BN: NDArray[np.int64]) -> None:
        """Continue each row from another row of its sentence: its past is now that row's."""
        self._state.reorder(parents_BN)

    def keep(self, places: Sequence[int]) -> None:
        """Keep the sentences at these places; each stays where it is, or comes from behind all that are kept."""
        self._state.keep(places)
        if self._listed is not None:
            self._listed.keep(places)
