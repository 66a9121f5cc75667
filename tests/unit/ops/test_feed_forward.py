import math

import pytest
import torch
from torch import Tensor

from regard.errors import InputError
from regard.ops import feed_forward, post_norm_residual, pre_norm_residual, residual


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


ACTIVATIONS = {
    "relu": lambda x: x.clamp(min=0),
    "gelu": gelu,
    "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + (-x).exp()),
    "swiglu": lambda x: x / (1 + (-x).exp()),
    "geglu": gelu,
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_feed_forward_is_its_equation(activation: str) -> None:
    x, W1, Wg = torch.randn(2, 3, 4), torch.randn(4, 6), torch.randn(4, 6)
    W2, b1, bg, b2 = torch.randn(6, 4), torch.randn(6), torch.randn(6), torch.randn(4)
    f = ACTIVATIONS[activation]
    if activation.endswith("glu"):
        expected = (f(x @ Wg + bg) * (x @ W1 + b1)) @ W2 + b2
        gate = dict(gate_FD=Wg.T, gate_bias_F=bg)
    else:
        expected, gate = f(x @ W1 + b1) @ W2 + b2, {}
    actual = feed_forward(x, W1.T, b1, W2.T, b2, activation=activation, **gate)  # type: ignore[arg-type]
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_bad_activations_and_gates_are_told() -> None:
    x, W = torch.randn(1, 1, 2), torch.randn(2, 2)
    with pytest.raises(InputError, match="'tanh'"):
        feed_forward(x, W, None, W, None, activation="tanh")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'swiglu' takes a gate"):
        feed_forward(x, W, None, W, None, activation="swiglu")
    with pytest.raises(InputError, match="'relu' takes no gate"):
        feed_forward(x, W, None, W, None, gate_FD=W)


def test_the_three_residuals_of_the_notes() -> None:
    x = torch.randn(2, 3)

    def double(y: Tensor) -> Tensor:
        return 2 * y

    def shift(y: Tensor) -> Tensor:
        return y + 1

    torch.testing.assert_close(residual(x, double), 3 * x)
    torch.testing.assert_close(pre_norm_residual(x, double, shift), x + 2 * (x + 1))
    torch.testing.assert_close(post_norm_residual(x, double, shift), 3 * x + 1)
