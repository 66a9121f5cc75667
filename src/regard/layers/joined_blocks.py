"""Blocks of keys and values, joined for attention; what is joined is not kept for the backward pass."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


def joined(blocks: Sequence[Tensor], dim: int = 2) -> Tensor:
    """Return blocks behind one another."""
    return blocks[0] if len(blocks) == 1 else torch.cat(list(blocks), dim)


class RecomputeConcat(saved_tensors_hooks):
    """A context in which autograd keeps the blocks of joined tensors, and joins them again in the backward pass.

    Neighboring queries attend to the same blocks, so that copies of all they attend to would be many times as large.

    >>> blocks = [torch.ones(1, 1, 2, 3, requires_grad=True) for _ in range(2)]
    >>> x = joined(blocks)
    >>> with RecomputeConcat((x, blocks)):
    ...     y = x.square().sum()
    >>> del x  # its memory is free from here on
    >>> y.backward()
    >>> blocks[0].grad.sum()
    tensor(12.)
    """

    def __init__(self, *pairs: tuple[Tensor, Sequence[Tensor]]) -> None:
        parts = {
            x.untyped_storage()._cdata: (x.shape, x.stride(), [block.detach() for block in blocks])
            for x, blocks in pairs
            if len(blocks) > 1
        }

        def pack(x: Tensor) -> Any:
            shape, stride, blocks = parts.get(x.untyped_storage()._cdata, (None, None, None))
            return blocks if blocks is not None and (x.shape, x.stride()) == (shape, stride) else x

        def unpack(kept: Any) -> Tensor:
            return kept if isinstance(kept, Tensor) else joined(kept)

        super().__init__(pack, unpack)
