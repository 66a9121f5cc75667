"""The decoder for models that are decoded without a cache: it calls the model with whole prefixes.

A `forward` of the model's own, or a hook on it, is not a part of `decode`; a layer may depend on other positions, as a
convolution does, or have no cache.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.data import padded
from regard.errors import InputError
from regard.inference.generic_decoder import GenericBackend, GenericDecoder
from regard.layers.kv_cache import Rows, on_host


class Prefixes:
    """The source and the target so far of each row, in place of a cache."""

    def __init__(self, sources: Sequence[Sequence[int]]) -> None:
        self.sources: list[Sequence[int]] = list(sources)
        self.targets: list[list[int]] = [[] for _ in sources]

    def keep(self, rows: Rows) -> None:
        """Keep these rows, in this order."""
        chosen = on_host(rows).tolist()
        self.sources = [self.sources[row] for row in chosen]
        self.targets = [list(self.targets[row]) for row in chosen]

    def reorder(self, rows: Rows) -> None:
        """Continue each row from another one."""
        self.keep(rows)

    def admit(self, other: "Prefixes") -> None:
        """Take in the rows of another, behind those that are there."""
        self.sources, self.targets = self.sources + other.sources, self.targets + other.targets

    def expand(self, beams: int) -> None:
        """Repeat each row for so many beams, which then stand next to one another."""
        self.keep(np.arange(len(self.sources)).repeat(beams))


class UncachedDecoder(GenericDecoder):
    """Sentences that are being decoded by `model(source, target)`, which computes each prefix anew."""

    def __init__(self, backend: GenericBackend, *args: Any, attention: bool = False, **options: Any) -> None:
        if attention:
            reason = f" ({backend.reason})" if backend.reason else ""
            raise InputError(f"a model that is decoded without a cache returns no attention weights{reason}")
        super().__init__(backend, *args, **options)

    def prefill(self, numbers: Sequence[int], prefixes: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Take sentences in with what they start with; return logits (B, W) and the prefixes' log-probabilities (B)."""
        cache: Any = self._start_cache(numbers)
        for row, prefix in enumerate(prefixes):
            cache.targets[row] = [self._backend.start, *prefix]
        logits_BTW = self._forward(cache)
        self._take_in(cache, numbers)
        logits_BW = torch.zeros(len(numbers), logits_BTW.size(-1), dtype=logits_BTW.dtype)
        logs_B = torch.zeros(len(numbers), dtype=torch.float64)
        for row, prefix in enumerate(prefixes):
            logits_TW = logits_BTW[row, : len(prefix) + 1, None]
            listed_TW = torch.cat([self._listed(logits_1W, [numbers[row]], 1)[0] for logits_1W in logits_TW])
            logits_BW[row] = listed_TW[-1]
            tokens_T1 = torch.tensor(prefix, dtype=torch.long)[:, None]
            logs_B[row] = listed_TW[:-1].log_softmax(-1).gather(1, tokens_T1).double().sum()
        return logits_BW, logs_B

    def _start_cache(self, numbers: Sequence[int]) -> Any:
        return Prefixes([self._sources[number] for number in numbers])

    def _step(self, tokens_R1: Tensor, cache: Any, numbers: Sequence[int], rows: int) -> Tensor:
        for target, token in zip(cache.targets, tokens_R1[:, 0].tolist(), strict=True):
            target.append(token)
        last_R = torch.tensor([len(target) - 1 for target in cache.targets])
        logits_RTW = self._forward(cache)
        return self._listed(logits_RTW[torch.arange(len(last_R)), last_R], numbers, rows)

    @torch.no_grad()
    def _forward(self, cache: Prefixes) -> Tensor:
        """Return the logits (R, T, W) of all positions of all rows, on the host."""
        pad = self._backend.config.pad_id
        source = None if self._model.encoder is None else self._on_device(padded(cache.sources, pad))
        logits_RTW: Tensor = self._model(source, self._on_device(padded(cache.targets, pad)))
        return logits_RTW.cpu()


class UncachedBackend(GenericBackend):
    """A model that is decoded without a cache: it is called with whole prefixes."""

    kind: ClassVar[str] = "generic decoder without a cache"

    @property
    def decoder_type(self) -> type[UncachedDecoder]:
        """The decoder over the model itself."""
        return UncachedDecoder
