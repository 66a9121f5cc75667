"""`torch.nn.Transformer` in a plain loop."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.training.measure import PAD, SMOOTHING, Size, Step, run, updated_by_adam


class Translator(nn.Module):
    """Embeddings, positions and a tied output around it, as its tutorial has them."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.positions: Tensor
        self.embedding = nn.Embedding(size.vocab, size.d_model, padding_idx=PAD)
        at = torch.arange(512)[:, None] * torch.exp(-math.log(10_000) * torch.arange(0, size.d_model, 2) / size.d_model)
        self.register_buffer("positions", torch.stack([at.sin(), at.cos()], dim=-1).flatten(1))
        self.dropout = nn.Dropout(size.dropout)
        self.transformer = nn.Transformer(
            size.d_model, size.heads, size.layers, size.layers, size.d_ff, size.dropout, batch_first=True
        )
        # As in the paper and in all other contestants, nothing is dropped from attention weights and hidden layers.
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout = nn.Dropout(0.0)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the logits."""
        x, y = (
            self.dropout(self.embedding(tokens) * self.size.d_model**0.5 + self.positions[: tokens.size(1)])
            for tokens in (source, target)
        )
        states = self.transformer(
            x,
            y,
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(target.size(1)),
            src_key_padding_mask=source == PAD,
            memory_key_padding_mask=source == PAD,
            tgt_is_causal=True,
        )
        return F.linear(states, self.embedding.weight)


def make_step(size: Size) -> Step:
    """Run the training loop."""
    model = Translator(size)

    def loss(source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        logits = model(source, target).flatten(0, 1)
        return F.cross_entropy(logits, labels.flatten(), label_smoothing=SMOOTHING, ignore_index=PAD)

    return updated_by_adam(model, loss)


if __name__ == "__main__":
    run(make_step)
