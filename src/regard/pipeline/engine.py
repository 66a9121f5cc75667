"""The decoder behind a search: a model's packed layers, with the past of every row of every sentence.

The rows of a sentence never move in memory. What each of them has written stays where it was written, at its position
and row; which of those places belong to the past of which row is a mask, and that is all that a search reorders. The
source's keys and values are there once for each sentence, and not for each of its rows.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.errors import InputError
from regard.model import Transformer
from regard.pipeline.linear import Precision, packed_weight
from regard.pipeline.packed import PackedDecoderLayer, PackedEncoderLayer, Rows, packed_norm
from regard.text import padded

_READ = 32  # sources that are encoded at once
_ROUND = 8  # sizes grow in steps of this many positions, so that sums are cut up alike whatever lies beside


class Engine:
    """A model ready to decode; what is being decoded is in a `Decoding` of it."""

    def __init__(self, model: Transformer, precision: Precision = "float") -> None:
        config = model.config
        if config.kind == "encoder-only" or config.bos_id is None or config.eos_id is None:
            raise InputError("the model's config has no decoder, or no bos_id and eos_id; a search needs all of them")
        self.config, self.model, self.precision = config, model, precision
        self.start, self.end = config.bos_id, config.eos_id
        encoder = [] if model.encoder is None else list(model.encoder.layers)
        decoder = [] if model.decoder is None else list(model.decoder.layers)
        self._encoder = [PackedEncoderLayer(layer, precision) for layer in encoder]  # type: ignore[arg-type]
        self.decoder = [PackedDecoderLayer(layer, precision) for layer in decoder]  # type: ignore[arg-type]
        self._encoder_norm, self._decoder_norm = map(_final_norm, (model.encoder, model.decoder))
        bias = model.output.bias
        self._output = packed_weight(model.output.weight.detach(), bias if bias is None else bias.detach(), precision)
        self.dtype = model.output.weight.dtype

    @property
    def longest(self) -> int:
        """How many tokens a target may have: the start takes a position too, and a learned table has an end."""
        config = self.config
        return config.max_positions - 1 if config.positions == "learned" else 10**9

    def encode(self, source_BS: Tensor) -> tuple[Tensor, Tensor]:
        """Give the encoder's states BSD, and a mask of 0 and -∞ for padding, (B, 1, 1, S)."""
        assert self.model.source_embedding is not None
        x_BSD = self.model.source_embedding(source_BS)
        mask_B11S = additive((source_BS != self.config.pad_id)[:, None, None, :], self.dtype)
        B, S, D = x_BSD.shape
        x_RD = x_BSD.view(B * S, D)
        for layer in self._encoder:
            x_RD = layer(x_RD, mask_B11S, B)
        return self._encoder_norm(x_RD).view(B, S, D), mask_B11S

    def embed(self, tokens_BN: Tensor, positions_B: Tensor) -> Tensor:
        """Give the input (R, D) of the decoder for one token in each row."""
        assert self.model.target_embedding is not None
        embedding = self.model.target_embedding
        B, N = tokens_BN.shape
        x_BND: Tensor = embedding.tokens(tokens_BN)
        if embedding.positions is not None:
            x_BND = x_BND + embedding.positions(positions_B[:, None], int(positions_B.max()) + 1)
        if embedding.norm is not None:
            x_BND = embedding.norm(x_BND)
        return x_BND.view(B * N, -1)

    def logits(self, x_RD: Tensor) -> Tensor:
        """Give the logits (R, W) of decoder states."""
        return self._output(self._decoder_norm(x_RD))


class Decoding:
    """Sentences that are being decoded, N rows each."""

    def __init__(self, engine: Engine, sources: Sequence[Sequence[int]], rows: int, *, attention: bool = False) -> None:
        self._engine, self._sources, self._rows = engine, sources, rows
        self._wants_attention = attention
        self._attention_BNS: Tensor | None = None
        self._count = 0
        self._source_lengths: list[int] = []
        self._positions_B = torch.zeros(0, dtype=torch.int64)
        self._longest = 0
        layers = engine.decoder
        self._past = [self._empty(0, 0, layer.past.width) for layer in layers]
        self._source = [self._empty(0, 0, layer.source.width) for layer in layers if layer.source is not None]
        self._past_mask = torch.zeros(0, rows, 0, rows, dtype=engine.dtype)
        """(B, N, T, N): 0 where what row n' wrote at position t is in the past of row n, -∞ elsewhere."""
        self._source_mask = torch.zeros(0, 1, 1, 0, dtype=engine.dtype)

    def admit(self, numbers: Sequence[int]) -> Tensor:
        """Encode sentences, and let them in behind those that are there; give the logits (B, W) of their first token.

        All rows of a sentence start from the same token, so that one of them is computed and is the past of all.
        """
        before, self._count = self._count, self._count + len(numbers)
        self._longest = max(self._positions_B.tolist(), default=1)
        self._positions_B = torch.cat([self._positions_B, torch.ones(len(numbers), dtype=torch.int64)])
        self._make_room(self._longest)
        self._past_mask[before : self._count] = -torch.inf
        self._past_mask[before : self._count, :, 0, 0] = 0.0
        if self._source:
            self._read(numbers, before)
        positions_B = torch.zeros(len(numbers), dtype=torch.int64)
        x_RD = self._engine.embed(torch.full((len(numbers), 1), self._engine.start), positions_B)
        for index, layer in enumerate(self._engine.decoder):
            look_back = self._look_at_itself(index, layer, before)
            x_RD = layer(x_RD, look_back, self._look_at_source(index, layer, first=before))
        return self._engine.logits(x_RD)

    def _read(self, numbers: Sequence[int], before: int) -> None:
        """Encode sources, and project them for each layer: a few at a time, so that short ones are not padded much."""
        sources = [self._sources[number] for number in numbers]
        self._source_lengths += map(len, sources)
        self._make_source_room(max(self._source_lengths))
        self._source_mask[before : self._count] = -torch.inf
        for source in self._source:
            source[before : self._count].zero_()
        for first in range(0, len(sources), _READ):
            tokens_BS = padded(sources[first : first + _READ], self._engine.config.pad_id)
            states_BSD, mask_B11S = self._engine.encode(tokens_BS)
            B, S = tokens_BS.shape
            places = slice(before + first, before + first + B)
            self._source_mask[places, :, :, :S] = mask_B11S
            for source, layer in zip(self._source, self._engine.decoder, strict=True):
                assert layer.source is not None
                source[places, :S] = layer.source.key_value(states_BSD.flatten(0, 1)).view(B, S, -1)

    def step(self, tokens_BN: Tensor) -> Tensor:
        """Take the next token of each row in; give the logits (B, N, W) of the one after it."""
        B, N = tokens_BN.shape
        engine, positions_B = self._engine, self._positions_B
        self._longest = int(positions_B.max()) + 1
        self._make_room(self._longest)
        T = _rounded(self._longest)
        own = torch.arange(N)
        self._past_mask[torch.arange(B)[:, None], own, positions_B[:, None], own] = 0.0
        mask_B1NS = self._past_mask[:B, :, :T].reshape(B, 1, N, T * N)
        at_R = ((torch.arange(B) * self._past_mask.size(2) + positions_B)[:, None] * N + own).view(-1)
        x_RD = engine.embed(tokens_BN, positions_B)
        for index, layer in enumerate(engine.decoder):
            look_at_source = self._look_at_source(index, layer, first=0)
            x_RD = layer(x_RD, self._look_back(index, layer, at_R, mask_B1NS), look_at_source)
        self._positions_B = positions_B + 1
        return engine.logits(x_RD).view(B, N, -1)

    def attention(self) -> Tensor:
        """Give what the last step attended to in the source, the mean of the heads of the last layer: (B, N, S)."""
        assert self._attention_BNS is not None, "attention was not asked for"
        return self._attention_BNS

    def reorder(self, parents_BN: Tensor) -> None:
        """Let each row go on from another row of its sentence: its past is now that row's."""
        B, T = parents_BN.size(0), _rounded(self._longest)
        past_BNTN = self._past_mask[:B, :, :T]
        self._past_mask[:B, :, :T] = past_BNTN[torch.arange(B)[:, None], parents_BN]

    def keep(self, places: Sequence[int]) -> None:
        """Keep the sentences at these places, in this order; only those that change their place are copied."""
        moved = [(new, old) for new, old in enumerate(places) if new != old]
        self._positions_B = self._positions_B[list(places)]
        self._count = len(places)
        if self._source:
            self._source_lengths = [self._source_lengths[place] for place in places]
        if moved:
            new, old = (torch.tensor(side) for side in zip(*moved, strict=True))
            S = _rounded(self._longest) * self._rows
            for past in self._past:
                past[new, :S] = past[old, :S]
            self._past_mask[new] = self._past_mask[old]
            for source in self._source:
                source[new] = source[old]
            if self._source:
                self._source_mask[new] = self._source_mask[old]

    def _look_back(self, index: int, layer: PackedDecoderLayer, at_R: Tensor, mask_B1NS: Tensor) -> Rows:
        past_BSX = self._past[index]
        B, S = mask_B1NS.size(0), mask_B1NS.size(3)

        def look(x_RD: Tensor) -> Tensor:
            query_RX, key_value_RX = layer.past.query_key_value(x_RD)
            past_BSX.view(-1, past_BSX.size(2)).index_copy_(0, at_R, key_value_RX)
            return layer.past.attend(query_RX, past_BSX[:B, :S], mask_B1NS)

        return look

    def _look_at_itself(self, index: int, layer: PackedDecoderLayer, first: int) -> Rows:
        """The first token of the sentences from `first` on has nothing else to look back at."""
        past_BSX = self._past[index][first : self._count]

        def look(x_RD: Tensor) -> Tensor:
            query_RX, key_value_RX = layer.past.query_key_value(x_RD)
            past_BSX.zero_()
            past_BSX[:, 0] = key_value_RX
            return layer.past.attend(query_RX, key_value_RX[:, None], None)

        return look

    def _look_at_source(self, index: int, layer: PackedDecoderLayer, first: int) -> Rows:
        heads = layer.source
        if heads is None:
            return lambda x_RD: x_RD
        S = _rounded(max(self._source_lengths[first:], default=0))  # longer ones may have left
        source_BSX = self._source[index][first : self._count, :S]
        mask_B11S = self._source_mask[first : self._count, :, :, :S]
        last = index == len(self._engine.decoder) - 1

        def look(x_RD: Tensor) -> Tensor:
            query_RX = heads.query(x_RD)
            if last and self._wants_attention:
                self._attention_BNS = heads.weights(query_RX, source_BSX, mask_B11S)
            return heads.attend(query_RX, source_BSX, mask_B11S)

        return look

    def _make_room(self, positions: int) -> None:
        """Have room for so many positions of all sentences; what is there stays.

        Long sentences come first and few at a time, short ones later and many: room for as many as there ever are, as
        long as they ever are, would be room for what never comes.
        """
        B, _, T, N = self._past_mask.shape
        if self._count <= B and positions <= T:
            return
        more_B = self._count if self._count <= B else self._count + self._count // 4
        more_T = _rounded(max(positions, 16) if positions <= T else max(positions, 2 * T, 16))
        self._past = [_moved(old, self._empty(more_B, more_T * N, old.size(2))) for old in self._past]
        mask = torch.full((more_B, N, more_T, N), -torch.inf, dtype=self._past_mask.dtype)
        self._past_mask = _moved(self._past_mask, mask)

    def _make_source_room(self, positions: int) -> None:
        B, _, _, S = self._source_mask.shape
        if self._count <= B and positions <= S:
            return
        more_B, more_S = self._count + self._count // 4, _rounded(positions)
        self._source = [_moved(old, self._empty(more_B, more_S, old.size(2))) for old in self._source]
        mask = torch.full((more_B, 1, 1, more_S), -torch.inf, dtype=self._source_mask.dtype)
        self._source_mask = _moved(self._source_mask, mask)

    def _empty(self, B: int, S: int, X: int) -> Tensor:
        # Zeros rather than whatever memory holds: a weight of 0 on a NaN is a NaN.
        return torch.zeros(B, S, X, dtype=self._engine.dtype)


def _moved(old: Tensor, new: Tensor) -> Tensor:
    """Copy what both have room for."""
    common = tuple(slice(min(sizes)) for sizes in zip(old.shape, new.shape, strict=True))
    new[common] = old[common]
    return new


def additive(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """Give the notes' additive mask: 0 where attention is allowed, -∞ elsewhere."""
    return torch.zeros(allowed.shape, dtype=dtype).masked_fill_(~allowed, -torch.inf)


def _final_norm(stack: torch.nn.Module | None) -> Rows:
    norm = getattr(stack, "final_norm", None)
    return packed_norm(norm) if isinstance(norm, torch.nn.Module) else lambda x_RD: x_RD


def _rounded(positions: int) -> int:
    return -(-positions // _ROUND) * _ROUND
