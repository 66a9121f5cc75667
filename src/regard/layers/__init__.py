"""The parts of the model, as modules built from flat arguments. They never see a config."""

from regard.layers.attention import Attended as Attended
from regard.layers.attention import AttentionParts as AttentionParts
from regard.layers.attention import MultiHeadAttention as MultiHeadAttention
from regard.layers.attention import head_width as head_width
from regard.layers.decoder import Decoder as Decoder
from regard.layers.decoder import DecoderLayer as DecoderLayer
from regard.layers.dropout import Dropout as Dropout
from regard.layers.embeddings import Embedding as Embedding
from regard.layers.embeddings import OutputProjection as OutputProjection
from regard.layers.embeddings import TokenEmbedding as TokenEmbedding
from regard.layers.encoder import Encoder as Encoder
from regard.layers.encoder import EncoderLayer as EncoderLayer
from regard.layers.feed_forward import FeedForward as FeedForward
from regard.layers.kv_cache import DecoderCache as DecoderCache
from regard.layers.kv_cache import KeyValue as KeyValue
from regard.layers.kv_cache import KeyValueCache as KeyValueCache
from regard.layers.kv_cache import SourceCache as SourceCache
from regard.layers.norms import LayerNorm as LayerNorm
from regard.layers.norms import RMSNorm as RMSNorm
from regard.layers.positions import LearnedPositions as LearnedPositions
from regard.layers.positions import SinusoidalPositions as SinusoidalPositions
from regard.layers.residual import Residual as Residual
