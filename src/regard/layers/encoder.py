"""The encoder: self-attention and feed-forward, L times."""

from collections.abc import Iterable

from torch import Tensor, nn

from regard.layers.attention import MultiHeadAttention
from regard.layers.feed_forward import FeedForward
from regard.layers.residual import Residual
from regard.layers.shared_layers import stacked
from regard.ops import Mask


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each in its residual connection."""

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        feed_forward: FeedForward,
        *,
        self_attention_residual: Residual,
        feed_forward_residual: Residual,
    ) -> None:
        super().__init__()
        self.self_attention, self.self_attention_residual = self_attention, self_attention_residual
        self.feed_forward, self.feed_forward_residual = feed_forward, feed_forward_residual

    def forward(self, x_BSD: Tensor, mask: Mask | Tensor | None = None, *, positions: Tensor | None = None) -> Tensor:
        """Mix the positions, then transform each. `positions` are given where they are not 0, 1, 2 …."""
        at = {} if positions is None else {"positions": positions}
        x_BSD = self.self_attention_residual(x_BSD, lambda x: self.self_attention(x, mask=mask, **at))
        x_BSD = self.feed_forward_residual(x_BSD, self.feed_forward)
        return x_BSD


class Encoder(nn.Module):
    """g_{1:T′} = Encoder(x_{1:T′}): the layers in turn, and the final norm if there is one.

    The same layer may come several times: its parameters are shared.
    """

    def __init__(self, layers: Iterable[EncoderLayer], final_norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = stacked(layers)
        self.final_norm = final_norm

    def forward(self, x_BSD: Tensor, mask: Mask | Tensor | None = None, *, positions: Tensor | None = None) -> Tensor:
        """Return the encoder's states BSD. `positions` are given where they are not 0, 1, 2 …."""
        at = {} if positions is None else {"positions": positions}  # a layer of one's own need not know it
        for layer in self.layers:
            x_BSD = layer(x_BSD, mask, **at)
        return x_BSD if self.final_norm is None else self.final_norm(x_BSD)
