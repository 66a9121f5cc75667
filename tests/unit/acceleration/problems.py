"""Rows, weights and biases to multiply."""

import pytest
import torch
from torch import Tensor

from regard.kernels.bindings import kernels

needs_kernels = pytest.mark.skipif(kernels() is None, reason="the kernels were not built: there was no compiler")


def problem(R: int, D: int, X: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return x (R, D), weight (X, D) and bias (X,), always the same for a seed."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(*shape, generator=generator) for shape in ((R, D), (X, D), (X,)))  # type: ignore[return-value]
