"""What every decoding backend is: a model, its start and end tokens, and how it makes a decoder of sources."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property

from regard.decoding import Decoder
from regard.decoding.shortlist import Shortlist, Words
from regard.errors import InputError
from regard.model import Transformer


class Backend(ABC):
    """A model ready to decode. What is being decoded is in the decoders that it makes."""

    name: str
    """What runs, and why if it is not the fastest."""
    uses_kernels = False

    def __init__(self, model: Transformer, shortlist: Shortlist | None = None) -> None:
        config = model.config
        if config.kind == "encoder-only" or config.bos_id is None or config.eos_id is None:
            raise InputError("the model's config has no decoder, or no bos_id and eos_id; a search needs all of them")
        self.config, self.model, self.shortlist = config, model, shortlist
        self.start, self.end = config.bos_id, config.eos_id

    @cached_property
    def longest(self) -> int:
        """How many tokens a target may have: the start takes a position too, and a learned table has an end."""
        return 10**9 if self.config.longest is None else self.config.longest - 1

    def new_decoder(
        self,
        sources: Sequence[Sequence[int]],
        beams: int,
        *,
        attention: bool = False,
        words: Sequence[Words] | None = None,
    ) -> Decoder:
        """Return a decoder of sources; `words` are those that each may become, or all."""
        return self.decoder_type(self, sources, beams, attention=attention, words=words)

    @property
    @abstractmethod
    def decoder_type(self) -> Callable[..., Decoder]:
        """What makes a decoder: a class whose arguments are a backend and those of `new_decoder`."""
