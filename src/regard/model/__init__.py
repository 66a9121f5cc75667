"""The model: a configuration, the Transformer built from it, and its directory on disk."""

from regard.model.config import TransformerConfig as TransformerConfig
from regard.model.transformer import Memory as Memory
from regard.model.transformer import Transformer as Transformer
