"""A model directory put to work."""

from regard.pipeline.decoding import decode as decode
from regard.pipeline.pipeline import Pipeline as Pipeline
from regard.pipeline.pipeline import load as load
from regard.pipeline.translation import CrossAttention as CrossAttention
from regard.pipeline.translation import Translation as Translation
from regard.pipeline.translation import Wishes as Wishes
