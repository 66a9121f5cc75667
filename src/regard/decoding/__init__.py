"""Search: over a decoder's steps, knowing nothing of the model."""

from regard.decoding.constraints import Constraints as Constraints
from regard.decoding.scheduler import Waiting as Waiting
from regard.decoding.search import Decoder as Decoder
from regard.decoding.search import Event as Event
from regard.decoding.search import Finished as Finished
from regard.decoding.search import Settled as Settled
from regard.decoding.search import search as search
from regard.decoding.settings import Hypothesis as Hypothesis
from regard.decoding.settings import Request as Request
from regard.decoding.settings import SearchSettings as SearchSettings
