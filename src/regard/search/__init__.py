"""Search: over a step function, knowing nothing of the model."""

from regard.search.beam import Decoding as Decoding
from regard.search.beam import Hypothesis as Hypothesis
from regard.search.beam import beam_search as beam_search
