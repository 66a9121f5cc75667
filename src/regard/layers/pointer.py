"""A pointer-generator: the next token is generated, or copied from the source (See, Liu and Manning 2017).

    P(w) = p_gen softmax(hWᵀ)_w + (1 - p_gen) Σ_{i: x_i = w} a_i        a = softmax((h W_Q)(g W_K)ᵀ/√d_k)

with a decoder's state h, the encoder's states g, the source tokens x and p_gen = σ(h·w + b).
"""

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.layers.embeddings import OutputProjection
from regard.layers.kv_cache import KeyValue, SourceCache
from regard.ops.attention import attention_scores, masked_softmax


class Pointer(nn.Module):
    """The attention a, with which each target position may copy from the source: a head of its own.

    >>> import torch
    >>> pointer = Pointer(d_model=16)
    >>> memory, tokens = torch.randn(2, 7, 16), torch.randint(1, 100, (2, 7))
    >>> source = pointer.source(memory, torch.ones(2, 1, 1, 7, dtype=torch.bool), tokens)
    >>> pointer(torch.randn(2, 5, 16), source).shape  # states, weights and tokens
    torch.Size([2, 5, 30])
    """

    def __init__(self, d_model: int, d_k: int = 64) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(d_model, d_k), nn.Linear(d_model, d_k)
        self.scale = d_k**-0.5

    def source(self, memory_BSD: Tensor, mask: Tensor | None, tokens_BS: Tensor, *, beams: int = 1) -> SourceCache:
        """Return what is attended to: the keys of the source, and its tokens in place of values."""
        key_B1SK: Tensor = self.key(memory_BSD)[:, None]
        precision = torch.promote_types(key_B1SK.dtype, torch.float32)  # in which numbers of tokens are exact
        return SourceCache(KeyValue(key_B1SK.to(precision), tokens_BS[:, None, :, None].to(precision)), mask, beams)

    def forward(self, states_RTD: Tensor, source: SourceCache) -> Tensor:
        """Return the states with what a `PointerOutput` copies from behind them: S weights and S tokens."""
        key_B1SK, tokens_B1S1 = source.key_value
        query_B1XK = self.query(source.fold(states_RTD))[:, None].to(key_B1SK.dtype)
        weights_B1XS = masked_softmax(attention_scores(query_B1XK, key_B1SK, self.scale), source.mask)
        tokens_B1XS = tokens_B1S1.mT.expand_as(weights_B1XS)
        R, T, S = *states_RTD.shape[:2], tokens_B1S1.size(2)
        copied = torch.cat([weights_B1XS, tokens_B1XS], dim=-1).view(R, T, 2 * S)
        return torch.cat([states_RTD.to(copied.dtype), copied], dim=-1)


class PointerOutput(OutputProjection):
    """Log-probabilities of the vocabulary: those of generating a token, and of copying it from the source."""

    def __init__(self, vocab_size: int, d_model: int, *, tied_to: nn.Parameter | None = None, bias: bool = False):
        super().__init__(vocab_size, d_model, tied_to=tied_to, bias=bias)
        self.generate = nn.Linear(d_model, 1)

    def forward(self, states: Tensor) -> Tensor:
        """Return log P (…, W) for states (…, D + 2S), as a `Pointer` returns them."""
        D = self.weight.size(1)
        if states.size(-1) < D or (states.size(-1) - D) % 2:
            raise InputError(f"states are {states.size(-1)} wide; an output that copies reads {D} and the source's")
        hidden = states[..., :D].to(self.weight.dtype)
        weights, tokens = states[..., D:].chunk(2, dim=-1)
        gate = self.generate(hidden).to(weights.dtype)
        probs = torch.sigmoid(gate) * super().forward(hidden).to(weights.dtype).softmax(-1)
        # σ(-x) is 1 - σ(x), and does not round to 0 where the gate is open.
        probs = probs.scatter_add(-1, tokens.long(), torch.sigmoid(-gate) * weights)
        return probs.clamp_min(torch.finfo(probs.dtype).tiny).log()
