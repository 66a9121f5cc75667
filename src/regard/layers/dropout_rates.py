"""The dropout rates of a model."""

from torch import nn

from regard.layers.attention import MultiHeadAttention
from regard.layers.dropout import Dropout


def dropout_rates(model: nn.Module) -> list[tuple[nn.Module, str, float]]:
    """Return every layer that drops something, and the name and the value of its rate.

    >>> from regard.layers import Dropout
    >>> dropout_rates(Dropout(0.1))
    [(Dropout(0.1), 'rate', 0.1)]
    """
    found: list[tuple[nn.Module, str, float]] = []
    for layer in model.modules():
        if isinstance(layer, Dropout):
            found.append((layer, "rate", layer.rate))
        elif isinstance(layer, MultiHeadAttention):
            found.append((layer, "dropout", layer.dropout))
    return found
