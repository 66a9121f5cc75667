"""Sinusoidal positions (Vaswani et al. 2017, §3.5)."""

from typing import Literal, get_args

import torch
from torch import Tensor

from regard.errors import InputError

SinusoidLayout = Literal["interleaved", "halves"]


def sinusoidal_positions(
    length: int,
    d_model: int,
    *,
    layout: SinusoidLayout = "interleaved",
    dtype: torch.dtype = torch.float64,
    device: torch.device | None = None,
) -> Tensor:
    """Return the table (length, d_model) of

        PE(pos, 2i)   = sin(pos / 10000^(2i/d_model))
        PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))

    computed in float64 on the CPU, rounded once to `dtype`. An odd d_model ends on a sine. `layout` "halves" puts all
    sines before all cosines, as some models do.

    >>> sinusoidal_positions(2, 4, dtype=torch.float32)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    if length < 0 or d_model < 1:
        raise InputError(f"a position table of {length} × {d_model} was asked for; it needs length ≥ 0 and d_model ≥ 1")
    if layout not in get_args(SinusoidLayout):
        raise InputError(f"layout {layout!r} is not known; it is one of {', '.join(get_args(SinusoidLayout))}")
    position_T1 = torch.arange(length, dtype=torch.float64)[:, None]
    exponent = torch.arange(0, d_model, 2, dtype=torch.float64) / d_model
    angle = position_T1 * 10000.0**-exponent
    waves = (angle.sin(), angle.cos())
    table = torch.cat(waves, dim=1) if layout == "halves" else torch.stack(waves, dim=2).flatten(1)
    return table[:, :d_model].to(dtype).contiguous().to(device)
