"""Attention masks. They are boolean; True means that a query may attend to a key.

A mask is a boolean tensor that broadcasts to the scores `BHTS`, or a description of one (`Causal`, `KeyLengths`)
that composes with `&` and `|`. A description costs nothing until something asks for the dense tensor; the fused
path hands it to its kernel as it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import InputError


def causal_mask(T: int, S: int | None = None, *, device: torch.device | None = None) -> Tensor:
    """Causal mask of shape (T, S): query t attends to keys up to its own position.

    With S > T the queries are the last T of the S positions, as when decoding with a cache.

    >>> causal_mask(2, 3).int()
    tensor([[1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """
    S = T if S is None else S
    if T < 0 or S < 0:
        raise InputError(f"a causal mask of {T} queries over {S} keys was asked for; lengths cannot be negative")
    return Causal().dense(T, S, device)


def padding_mask(tokens: Tensor, pad_id: int) -> Tensor:
    """Hide padding tokens from every query: shape (B, 1, 1, S) for tokens (B, S), or (1, S) for one row (S,).

    >>> padding_mask(torch.tensor([[5, 6, 0]]), pad_id=0)
    tensor([[[[ True,  True, False]]]])
    """
    if tokens.dim() not in (1, 2):
        raise InputError(f"tokens have shape {tuple(tokens.shape)}; a padding mask is made of (S,) or (B, S)")
    keep = tokens.ne(pad_id)
    return keep[None, :] if tokens.dim() == 1 else keep[:, None, None, :]


class Mask(ABC):
    """A mask described rather than written out."""

    @abstractmethod
    def dense(self, T: int, S: int, device: torch.device | None = None) -> Tensor:
        """Write the mask out as a boolean tensor that broadcasts to `BHTS`, no larger than it has to be."""

    def check(self, BHTS: tuple[int, ...], device: torch.device) -> None:
        """Raise an `InputError` unless the mask fits scores of this shape: its tensors count positions, one a row."""
        name = type(self).__name__
        for counts in (value for value in vars(self).values() if isinstance(value, Tensor)):
            if tuple(counts.shape) != BHTS[:1]:
                raise InputError(f"{name} has a row count of shape {tuple(counts.shape)}; the batch has {BHTS[0]} rows")
            if counts.is_floating_point() or counts.dtype == torch.bool:
                raise InputError(f"{name} counts positions, and was given {counts.dtype}")
            _check_place(counts, name, device)

    def __and__(self, other: Mask | Tensor) -> Mask:
        return And(self, as_mask(other))

    def __or__(self, other: Mask | Tensor) -> Mask:
        return _Or(self, as_mask(other))

    __rand__ = __and__
    __ror__ = __or__


@dataclass(frozen=True)
class Causal(Mask):
    """Query t sees the keys s ≤ t + offset, the number of keys before each row's first query, S - T unless given."""

    offset_B: Tensor | None = None

    def dense(self, T: int, S: int, device: torch.device | None = None) -> Tensor:
        """Return (T, S), or (B, 1, T, S) where rows stand at different positions."""
        if self.offset_B is None:
            return torch.ones(T, S, dtype=torch.bool, device=device).tril(S - T)
        t_T1, s_S = torch.arange(T, device=device)[:, None], torch.arange(S, device=device)
        return s_S <= t_T1 + self.offset_B[:, None, None, None]


@dataclass(frozen=True)
class KeyLengths(Mask):
    """Row b attends to its first lengths[b] keys: right padding, given by lengths."""

    lengths_B: Tensor

    def dense(self, T: int, S: int, device: torch.device | None = None) -> Tensor:
        """Return (B, 1, 1, S): the same for all heads and queries, so none of them pays for it."""
        return torch.arange(S, device=device) < self.lengths_B[:, None, None, None]


@dataclass(frozen=True)
class DenseMask(Mask):
    """A mask that is already a tensor."""

    allowed: Tensor

    def dense(self, T: int, S: int, device: torch.device | None = None) -> Tensor:
        """Return the tensor itself."""
        return self.allowed


@dataclass(frozen=True)
class MaskPair(Mask):
    """Two masks composed."""

    first: Mask
    second: Mask


class And(MaskPair):
    """What both masks allow."""

    def dense(self, T: int, S: int, device: torch.device | None = None) -> Tensor:
        """Return the dense masks combined."""
        return self.first.dense(T, S, device) & self.second.dense(T, S, device)


class _Or(MaskPair):
    def dense(self, T: int, S: int, device: torch.device | None = None) -> Tensor:
        return self.first.dense(T, S, device) | self.second.dense(T, S, device)


def as_mask(mask: Mask | Tensor) -> Mask:
    """Return a boolean tensor or a `Mask` as a `Mask`; the error for an additive mask gives advice."""
    if isinstance(mask, Mask):
        return mask
    if not isinstance(mask, Tensor):
        raise InputError(f"a mask must be a boolean tensor (True = may attend), got {type(mask).__name__}")
    if mask.dtype != torch.bool:
        additive = "pass an additive mask (0 or -inf) as bias="
        advice = additive if mask.is_floating_point() else "pass mask.bool() if non-zero means that a query may attend"
        raise InputError(f"a mask must be boolean (True = may attend), got {mask.dtype}; {advice}")
    return DenseMask(mask)


def fitted_mask(mask: Mask, BHTS: tuple[int, ...], rank: int, device: torch.device) -> Mask:
    """Check that every part of a mask fits the scores and is on their device; nothing is made dense."""
    if isinstance(mask, MaskPair):
        return type(mask)(*(fitted_mask(part, BHTS, rank, device) for part in (mask.first, mask.second)))
    if isinstance(mask, DenseMask):
        return DenseMask(broadcast_to_scores(mask.allowed, "mask", BHTS, rank, device))
    mask.check(BHTS, device)
    return mask


def broadcast_to_scores(x: Tensor, name: str, BHTS: tuple[int, ...], rank: int, device: torch.device) -> Tensor:
    """Check that `x` is where the scores are and broadcasts to them without growing them; give it their four axes.

    Without heads the scores are (T, S) or (B, T, S) to the caller, by the `rank` of the query.
    """
    x4 = x[:, None] if x.dim() == rank == 3 else x.reshape((1,) * (4 - x.dim()) + tuple(x.shape))
    if x4.dim() != 4 or any(have not in (1, want) for have, want in zip(x4.shape, BHTS, strict=True)):
        scores = BHTS if rank == 4 else (BHTS[0], *BHTS[2:])[3 - rank :]
        raise InputError(f"{name} of shape {tuple(x.shape)} does not broadcast to the scores' shape {scores}")
    _check_place(x, name, device)
    return x4


def _check_place(x: Tensor, name: str, device: torch.device) -> None:
    if x.device != device:
        raise InputError(f"{name} is on {x.device}, and the query on {device}; they must be on one device")


def kernel_mask(mask: Mask | None, T: int, S: int, device: torch.device) -> tuple[bool, Tensor | None]:
    """Split a mask into what a fused kernel takes: whether it is causal, and a tensor for the rest."""
    if type(mask) is And:  # a subclass may be any mask
        first_causal, first = kernel_mask(mask.first, T, S, device)
        second_causal, second = kernel_mask(mask.second, T, S, device)
        rest = first if second is None else second if first is None else first & second
        return first_causal or second_causal, rest
    if type(mask) is Causal and mask.offset_B is None and (T == S or (T == 1 and S > 0)):
        # One query, the newest position of a cached decoder, sees all before it. T == S is no bool when compiled.
        return (True, None) if T == S else (False, None)
    return False, None if mask is None else mask.dense(T, S, device)
