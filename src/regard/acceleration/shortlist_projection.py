"""The output projection for words that are listed, sentence by sentence."""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.acceleration.packed_linear import KernelInt8Linear, PackedInt8Weight, RowFunction
from regard.decoding.shortlist import Words
from regard.kernels.bindings import LinearPointers, kernels
from regard.kernels.dispatch import threads


class ShortlistProjection:
    """Logits of the words that each sentence of a decoding may use; those of all others are -∞."""

    def __init__(self, output: RowFunction, vocab_size: int) -> None:
        self._output, self._W = output, vocab_size
        self._words: list[Words] = []
        self._chosen: list[PackedInt8Weight] = []

    def admit(self, words: Sequence[Words]) -> None:
        """Admit sentences that may use these words, behind those that are there."""
        self._words = [*self._words, *words]
        if isinstance(self._output, KernelInt8Linear):
            self._chosen = [*self._chosen, *(self._output.chosen(some) for some in words)]

    def keep(self, places: Sequence[int]) -> None:
        """Keep the sentences at these places, in this order."""
        self._words = [self._words[place] for place in places]
        if self._chosen:
            self._chosen = [self._chosen[place] for place in places]

    def __call__(self, x_RD: Tensor, places: slice) -> Tensor:
        """Return the logits (R, W) of the states of all rows of these sentences."""
        words, chosen = self._words[places], self._chosen[places]
        logits_RW = torch.full((x_RD.size(0), self._W), -torch.inf, dtype=x_RD.dtype)
        N = x_RD.size(0) // max(1, len(words))
        if not chosen:
            all_RW = self._output(x_RD)
            for number, some in enumerate(words):
                rows = slice(number * N, (number + 1) * N)
                logits_RW[rows, some] = all_RW[rows, some]
            return logits_RW
        library = kernels()
        assert library is not None
        x_RD = x_RD.contiguous()
        weights = (LinearPointers * len(chosen))(*(one.pointers for one in chosen))
        numbers = (ctypes.c_void_p * len(words))(*(some.ctypes.data for some in words))
        library.regard_shortlist_linear(
            weights, numbers, x_RD.data_ptr(), len(words), N, self._W, threads(), logits_RW.data_ptr()
        )
        return logits_RW
