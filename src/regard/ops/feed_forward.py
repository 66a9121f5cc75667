"""The activations of the position-wise feed-forward network (Vaswani et al. 2017, §3.3).

    FFN(x) = max(0, xW₁ + b₁)W₂ + b₂

With GELU or SiLU in place of the ReLU, or gated (Shazeer 2020): (f(xW_g + b_g) ⊙ (xW₁ + b₁))W₂ + b₂.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError

Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_tanh"]

_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "swiglu": F.silu,
    "geglu": F.gelu,
    "geglu_tanh": partial(F.gelu, approximate="tanh"),
}


def is_gated(activation: Activation) -> bool:
    """Whether an activation multiplies two projections of the input."""
    return activation in ("swiglu", "geglu", "geglu_tanh")


def activate(hidden_BTF: Tensor, activation: Activation, gate_BTF: Tensor | None = None) -> Tensor:
    """Return f(h) for a hidden layer, or f(g) ⊙ h with a gate.

    >>> import torch
    >>> activate(torch.tensor([-1.0, 2.0]), "relu")
    tensor([0., 2.])
    """
    if activation not in _FUNCTIONS:
        raise InputError(f"activation {activation!r} is not known; it is one of {', '.join(get_args(Activation))}")
    if is_gated(activation) != (gate_BTF is not None):
        raise InputError(f"activation {activation!r} takes {'a' if is_gated(activation) else 'no'} gate")
    function = _FUNCTIONS[activation]
    return function(hidden_BTF) if gate_BTF is None else function(gate_BTF) * hidden_BTF
