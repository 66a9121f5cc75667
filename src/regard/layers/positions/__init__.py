"""Position encodings: added to the embeddings, or part of attention."""

from regard.layers.positions.absolute import AbsolutePositions as AbsolutePositions
from regard.layers.positions.absolute import LearnedPositions as LearnedPositions
from regard.layers.positions.absolute import SinusoidalPositions as SinusoidalPositions
from regard.layers.positions.absolute import TokenPositions as TokenPositions
from regard.layers.positions.alibi import ALiBi as ALiBi
from regard.layers.positions.relative import RelativePositions as RelativePositions
from regard.layers.positions.rotary import RotaryPositions as RotaryPositions
from regard.layers.positions.shaw import ShawPositions as ShawPositions
from regard.layers.positions.t5_bias import T5Bias as T5Bias
