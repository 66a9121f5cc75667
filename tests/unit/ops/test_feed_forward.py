import math

import pytest
import torch
from torch import Tensor

from regard.errors import InputError
from regard.ops.feed_forward import activate, is_gated


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS = {
    "relu": lambda x: x.clamp(min=0),
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": lambda x: x / (1 + (-x).exp()),
    "swiglu": lambda x: x / (1 + (-x).exp()),
    "geglu": gelu,
    "geglu_tanh": gelu_tanh,
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_are_their_equations(activation: str) -> None:
    hidden, gate, f = torch.randn(2, 3, 6), torch.randn(2, 3, 6), ACTIVATIONS[activation]
    if is_gated(activation):  # type: ignore[arg-type]
        found, expected = activate(hidden, activation, gate), f(gate) * hidden  # type: ignore[arg-type]
    else:
        found, expected = activate(hidden, activation), f(hidden)  # type: ignore[arg-type]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_bad_activations_and_gates_are_told() -> None:
    x = torch.randn(1, 1, 2)
    with pytest.raises(InputError, match="'tanh'"):
        activate(x, "tanh")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'swiglu' takes a gate"):
        activate(x, "swiglu")
    with pytest.raises(InputError, match="'relu' takes no gate"):
        activate(x, "relu", x)
