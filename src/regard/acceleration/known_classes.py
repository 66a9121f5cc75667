"""The classes of modules that kernels know."""

from torch import nn

from regard import layers
from regard.layers.patterns import SlidingWindow
from regard.layers.positions import ALiBi, RotaryPositions, T5Bias
from regard.model import Transformer

KNOWN: frozenset[type[nn.Module]] = frozenset(
    {
        layers.Decoder,
        layers.DecoderLayer,
        layers.Dropout,
        layers.Embedding,
        layers.Encoder,
        layers.EncoderLayer,
        layers.FactorizedOutputProjection,
        layers.FactorizedTokenEmbedding,
        layers.FeedForward,
        layers.LayerNorm,
        layers.LearnedPositions,
        layers.MultiHeadAttention,
        layers.OutputProjection,
        layers.RMSNorm,
        layers.Residual,
        layers.SharedLayers,
        layers.SinusoidalPositions,
        layers.TokenEmbedding,
        Transformer,
        nn.Linear,
        nn.ModuleList,
    }
)

KERNEL_PARTS: frozenset[type[nn.Module]] = frozenset({ALiBi, RotaryPositions, SlidingWindow, T5Bias})
"""The parts of attention that kernels know, in training and in packed layers."""
