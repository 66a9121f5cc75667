"""The decoder for any model on any device: it calls the model's own `encode` and `decode`, with its caches."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.acceleration.backend import Backend
from regard.data import padded
from regard.decoding.shortlist import Shortlist, Words
from regard.devices import to_device
from regard.layers import DecoderCache
from regard.model import Transformer

_LOGITS = 512  # positions of prefixes whose logits are in memory at a time


class GenericBackend(Backend):
    """A model as it is. What is being decoded is in the `GenericDecoder` that it makes."""

    kind: ClassVar[str] = "generic decoder"

    def __init__(self, model: Transformer, shortlist: Shortlist | None = None, *, reason: str = "") -> None:
        super().__init__(model, shortlist)
        self.device, self.reason = model.device, reason
        self.name = f"{self.kind} ({reason})" if reason else self.kind

    @property
    def decoder_type(self) -> "type[GenericDecoder]":
        """The decoder over the model itself."""
        return GenericDecoder


class GenericDecoder:
    """Sentences that are being decoded, N rows each, by `Transformer.decode`."""

    def __init__(
        self,
        backend: GenericBackend,
        sources: Sequence[Sequence[int]],
        beams: int,
        *,
        attention: bool = False,
        words: Sequence[Words] | None = None,
    ) -> None:
        self._backend, self._model, self._sources, self._beams = backend, backend.model, sources, beams
        self._words, self._numbers = words, list[int]()
        self._cache: DecoderCache | None = None
        self._wants_attention = attention
        self._attention: Tensor | None = None

    def admit(self, numbers: Sequence[int]) -> Tensor:
        """Encode sentences and take them in, behind those that are there; return the logits of their first token."""
        cache = self._start_cache(numbers)
        start_B1 = self._on_device(torch.full((len(numbers), 1), self._backend.start))
        logits_BW = self._step(start_B1, cache, numbers, 1)[:, 0]
        self._take_in(cache, numbers)
        return logits_BW

    def prefill(self, numbers: Sequence[int], prefixes: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Take sentences in with what they start with, in one forward pass.

        Return the logits (B, W) of the first token after that, and the log-probabilities (B) of the prefixes.
        """
        cache, counts_B = self._start_cache(numbers), np.array([len(prefix) for prefix in prefixes])
        tokens_BT = padded([[self._backend.start, *prefix] for prefix in prefixes], self._backend.config.pad_id)
        lengths = None if (counts_B == counts_B[0]).all() else counts_B + 1
        states_BTD = self._model.decode(self._on_device(tokens_BT), cache=cache, lengths=lengths)
        self._take_in(cache, numbers)
        last_B1D = states_BTD[torch.arange(len(numbers)), torch.from_numpy(counts_B)][:, None]
        logits_BW = self._logits(last_B1D, numbers, 1)[:, 0]
        logs_B = torch.zeros(len(numbers), dtype=torch.float64)
        places_R, positions_R = (torch.arange(tokens_BT.size(1)) < torch.from_numpy(counts_B)[:, None]).nonzero().T
        for places, positions in zip(places_R.split(_LOGITS), positions_R.split(_LOGITS), strict=True):
            sentences = [numbers[place] for place in places.tolist()]
            logits_R1W = self._logits(states_BTD[places, positions][:, None], sentences, 1)
            tokens_R11 = tokens_BT[places, positions + 1][:, None, None]
            logs_B.index_add_(0, places, logits_R1W.log_softmax(-1).gather(2, tokens_R11)[:, 0, 0].double())
        return logits_BW, logs_B

    def _start_cache(self, numbers: Sequence[int]) -> DecoderCache:
        model, memory = self._model, None
        if model.encoder is not None:
            sources = [self._sources[number] for number in numbers]
            memory = model.encode(self._on_device(padded(sources, self._backend.config.pad_id)))
        return model.start_cache(memory)

    def _take_in(self, cache: DecoderCache, numbers: Sequence[int]) -> None:
        # All beams of a sentence start from the same tokens: one of them was computed, and is the past of all.
        cache.expand(self._beams)
        if self._cache is None or not self._numbers:
            self._cache = cache
        else:
            self._cache.admit(cache)
        self._numbers += numbers

    def step(self, tokens_BN: Tensor) -> Tensor:
        """Take the next token of each row in; return the logits (B, N, W) of the one after it."""
        assert self._cache is not None, "there are sentences to go on with"
        tokens_R1 = self._on_device(tokens_BN).reshape(-1, 1)
        return self._step(tokens_R1, self._cache, self._numbers, self._beams)

    def _step(self, tokens_R1: Tensor, cache: DecoderCache, numbers: Sequence[int], rows: int) -> Tensor:
        record: list[Tensor] | None = [] if self._wants_attention else None
        states_R1D = self._model.decode(tokens_R1, cache=cache, record=record)
        if record:
            self._attention = record[-1][:, :, -1].mean(1).view(len(numbers), rows, -1).cpu()
        return self._logits(states_R1D, numbers, rows)

    def _logits(self, states_R1D: Tensor, numbers: Sequence[int], rows: int) -> Tensor:
        """Return the logits (B, N, W) of so many rows of each sentence; words that are not listed have -∞."""
        # A copy: the search writes over logits, and these may be a hook's or a parameter's own.
        return self._listed(self._model.logits(states_R1D)[:, -1].to("cpu", copy=True), numbers, rows)

    def _listed(self, logits_RW: Tensor, numbers: Sequence[int], rows: int) -> Tensor:
        """Return logits by sentence (B, N, W), with -∞ for words that are not listed."""
        logits_BNW = logits_RW.view(len(numbers), rows, -1)
        if self._words is not None:
            allowed_BW = torch.zeros(len(numbers), logits_BNW.size(-1), dtype=torch.bool)
            for place, number in enumerate(numbers):
                allowed_BW[place, torch.from_numpy(self._words[number]).long()] = True
            logits_BNW = logits_BNW.masked_fill(~allowed_BW[:, None], -torch.inf)
        return logits_BNW

    def attention(self) -> Tensor:
        """Return the weights of the last step over the source, the mean of the heads of the last layer: (B, N, S)."""
        assert self._attention is not None, "attention was not asked for"
        return self._attention

    def reorder(self, parents_BN: NDArray[np.int64]) -> None:
        """Continue each row from another row of its sentence."""
        assert self._cache is not None, "there are sentences to go on with"
        first_B1 = np.arange(len(parents_BN))[:, None] * self._beams
        self._cache.reorder((first_B1 + parents_BN).ravel())

    def keep(self, places: Sequence[int]) -> None:
        """Keep the sentences at these places, in this order."""
        assert self._cache is not None, "there are sentences to keep"
        self._numbers = [self._numbers[place] for place in places]
        first_B1 = np.array(places, dtype=np.int64)[:, None] * self._beams
        self._cache.keep((first_B1 + np.arange(self._beams)).ravel())

    def _on_device(self, tokens: Tensor) -> Tensor:
        return to_device(tokens, self._backend.device)
