"""Rotary positions, RoPE (Su et al. 2021): queries and keys are rotated by their positions.

    (x_i, x_{i+K/2}) turns by the angle position · f_i, f_i = base^(-2i/K), i = 0 … K/2 - 1

so that the score of a query and a key depends on their distance alone. The two numbers that turn together lie half a
head apart ("halves", as in Hugging Face's Llama). In the paper they are neighbors, x_{2i} and x_{2i+1} ("interleaved");
`halves_from_interleaved` converts the projections of such a model.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.devices import to_device
from regard.errors import InputError
from regard.layers.positions.relative import RelativePositions


@dataclass(frozen=True)
class LinearScaling:
    """Positions divided by a factor: position interpolation (Chen et al. 2023)."""

    factor: float

    def apply(self, d_k: int, base: float) -> tuple[list[float], float]:
        """Return the frequencies, and what queries and keys are multiplied by."""
        return [frequency / self.factor for frequency in rotary_frequencies(d_k, base)], 1.0


@dataclass(frozen=True)
class NtkScaling:
    """A base so much larger that the slowest pair turns as if positions were divided by the factor (NTK-aware)."""

    factor: float

    def apply(self, d_k: int, base: float) -> tuple[list[float], float]:
        """Return the frequencies, and what queries and keys are multiplied by."""
        if d_k == 2:
            raise InputError(
                "d_k is 2: NTK-aware scaling changes the base, and a single pair turns alike with any base"
            )
        return rotary_frequencies(d_k, base * self.factor ** (d_k / (d_k - 2))), 1.0


@dataclass(frozen=True)
class YarnScaling:
    """YaRN (Peng et al. 2023): fast pairs turn as before, slow ones as if positions were divided by the factor.

    Between those that turn `beta_fast` times and `beta_slow` times over the `original_length` that a model was trained
    on, frequencies are mixed linearly in the number of the pair, from and to whole numbers, as in the authors' code.
    Queries and keys are multiplied by `attention_factor`, 0.1 ln(factor) + 1 unless given: the square root of their
    1/t, the temperature of the softmax.
    """

    factor: float
    original_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None

    def apply(self, d_k: int, base: float) -> tuple[list[float], float]:
        """Return the frequencies, and what queries and keys are multiplied by."""
        first = max(math.floor(self._pair(self.beta_fast, d_k, base)), 0)
        last = min(math.ceil(self._pair(self.beta_slow, d_k, base)), d_k - 1)
        span = last - first if last > first else 1e-3
        frequencies = []
        for pair, frequency in enumerate(rotary_frequencies(d_k, base)):
            slow = min(max((pair - first) / span, 0.0), 1.0)
            frequencies.append(frequency * (1.0 - slow) + frequency / self.factor * slow)
        return frequencies, 0.1 * math.log(
            self.factor
        ) + 1.0 if self.attention_factor is None else self.attention_factor

    def _pair(self, turns: float, d_k: int, base: float) -> float:
        """Return the number of the pair, in fractions, that turns so often over the original length."""
        return d_k * math.log(self.original_length / (2.0 * math.pi * turns)) / (2.0 * math.log(base))


Scaling = LinearScaling | NtkScaling | YarnScaling
"""How a model that was trained on short sequences is brought to longer ones."""


def rotary_frequencies(d_k: int, base: float) -> list[float]:
    """Return how far each pair turns from one position to the next, in radians: base^(-2i/d_k).

    >>> rotary_frequencies(4, base=100.0)
    [1.0, 0.1]
    """
    return [base ** (-2.0 * pair / d_k) for pair in range(d_k // 2)]


class RotaryPositions(RelativePositions):
    """Rotate queries and keys by their positions, before they are compared and before keys are cached.

    >>> rotary = RotaryPositions(d_k=2)
    >>> rotary.rotate(torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([1]))  # cos 1, sin 1
    tensor([[[[0.5403, 0.8415]]]])

    Angles are float32 at least, whatever the type of the queries.
    """

    def __init__(self, d_k: int, *, base: float = 10_000.0, scaling: Scaling | None = None) -> None:
        super().__init__()
        if d_k % 2:
            raise InputError(f"d_k is {d_k}; rotary positions turn pairs of numbers, so it must be even")
        self.d_k, self.base, self.scaling = d_k, base, scaling
        plain = (rotary_frequencies(d_k, base), 1.0)
        self.frequencies, self.attention_factor = plain if scaling is None else scaling.apply(d_k, base)

    def rotate(self, x_BHTK: Tensor, positions: Tensor) -> Tensor:
        """Return queries or keys, each pair turned by the angle of its position."""
        cosine, sine = self.turns(positions, torch.promote_types(x_BHTK.dtype, torch.float32))
        first, second = x_BHTK.chunk(2, dim=-1)
        rotated = torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)
        return rotated.to(x_BHTK.dtype)

    def turns(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the cosines and sines of all pairs at these positions: (T, K/2), or (B, 1, T, K/2) where rows differ.

        They are multiplied by what queries and keys are multiplied by.
        """
        frequencies = to_device(torch.tensor(self.frequencies, dtype=dtype), positions.device)
        angles = positions.to(dtype)[..., None] * frequencies
        angles = angles if positions.dim() == 1 else angles[:, None]
        return angles.cos() * self.attention_factor, angles.sin() * self.attention_factor

    def extra_repr(self) -> str:
        """Show the options when a model is printed."""
        return f"d_k={self.d_k}, base={self.base:g}, scaling={self.scaling}"


def halves_from_interleaved(projection: Tensor, num_heads: int) -> Tensor:
    """Return the weight (H · K, D) or bias (H · K) of a query or key projection whose pairs were neighbors, as halves.

    >>> halves_from_interleaved(torch.arange(8), num_heads=2)
    tensor([0, 2, 1, 3, 4, 6, 5, 7])
    """
    if projection.size(0) % (2 * num_heads):
        raise InputError(f"{projection.size(0)} rows are no pairs of {num_heads} heads")
    pairs = projection.reshape(num_heads, -1, 2, *projection.shape[1:])
    return pairs.transpose(1, 2).reshape(projection.shape)
