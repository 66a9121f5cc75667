"""Search: over a decoder's steps, knowing nothing of the model."""

from regard.search.constraints import Constraints as Constraints
from regard.search.run import Decoder as Decoder
from regard.search.run import Event as Event
from regard.search.run import Finished as Finished
from regard.search.run import Settled as Settled
from regard.search.run import search as search
from regard.search.settings import Hypothesis as Hypothesis
from regard.search.settings import Request as Request
from regard.search.settings import SearchSettings as SearchSettings
from regard.search.waiting import Waiting as Waiting
