"""Where a token stands: the sinusoidal positions of the third note, exact at any length."""

from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Literal, get_args

import torch
from torch import Tensor

from regard.errors import InputError

_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
_WORD = 2**64


SinusoidLayout = Literal["interleaved", "halves"]


def sinusoidal_positions(
    length: int, d_model: int, *, layout: SinusoidLayout = "interleaved", dtype: torch.dtype = torch.float64
) -> Tensor:
    """Give the table (length, d_model) of

        pos_encoding(pos, 2i)   = sin(pos / 10000^(2i/d_model))
        pos_encoding(pos, 2i+1) = cos(pos / 10000^(2i/d_model))

    in float64 and rounded once to `dtype`. An odd d_model ends on a sine. `layout` "halves" puts all sines before all
    cosines, as some models do.

    >>> sinusoidal_positions(2, 4, dtype=torch.float32)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])

    The angle of position 100,000 in float64 is off by up to 1e-11 before its sine is taken. Here an angle is counted
    in turns as a 64-bit fraction, whose product with the position wraps around as turns do and loses no digit.
    """
    if length < 0 or d_model < 1:
        raise InputError(f"a position table of {length} × {d_model} was asked for; it needs length ≥ 0 and d_model ≥ 1")
    if layout not in get_args(SinusoidLayout):
        raise InputError(f"layout {layout!r} is not known; it is one of {', '.join(get_args(SinusoidLayout))}")
    if torch.get_default_device().type == "meta":
        return torch.empty(length, d_model, dtype=dtype)
    cpu = torch.device("cpu")  # the table is made here, whatever device tensors are made on by default
    words, rests = _turns_per_position(d_model)
    whole = torch.tensor(words, dtype=torch.int64, device=cpu)
    rest = torch.tensor(rests, dtype=torch.float64, device=cpu)
    position = torch.arange(length, dtype=torch.int64, device=cpu)[:, None]
    turns = (position * whole).double() / float(_WORD) + position * rest
    angle = turns * (2 * torch.pi)
    sines, cosines = angle.sin(), angle.cos()[:, : d_model // 2]
    if layout == "halves":
        table = torch.cat([sines, cosines], dim=1)
    else:
        table = torch.empty(length, d_model, dtype=torch.float64, device=cpu)
        table[:, 0::2], table[:, 1::2] = sines, cosines
    return table.to(dtype=dtype, device=torch.get_default_device())


@lru_cache(maxsize=8)  # half a millisecond a frequency, and the same for every table of a model
def _turns_per_position(d_model: int) -> tuple[list[int], list[float]]:
    """Give 10000^(-2i/d_model) / 2π for each i, as 64 bits after the point and a float64 for what they leave over."""
    whole, rest = [], []
    with localcontext(prec=50):
        for i in range((d_model + 1) // 2):
            turns = Decimal(10000) ** (Decimal(-2 * i) / d_model) / (2 * _PI)
            bits = int(turns * _WORD)
            whole.append(bits)  # less than a sixth of 2^64: fits a signed word
            rest.append(float(turns - Decimal(bits) / _WORD))
    return whole, rest
