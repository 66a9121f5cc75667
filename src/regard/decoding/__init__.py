"""Search: over a decoder's steps, knowing nothing of the model.

Names are imported when they are first used: the command line reads `SearchSettings` without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.decoding.constraints import Constraints as Constraints
    from regard.decoding.loop import Decoder as Decoder
    from regard.decoding.loop import Event as Event
    from regard.decoding.loop import Finished as Finished
    from regard.decoding.loop import StreamedTokens as StreamedTokens
    from regard.decoding.loop import search as search
    from regard.decoding.scheduler import Scheduler as Scheduler
    from regard.decoding.settings import Hypothesis as Hypothesis
    from regard.decoding.settings import Request as Request
    from regard.decoding.settings import SearchSettings as SearchSettings

_HOME = {
    "Constraints": "constraints",
    "Decoder": "loop",
    "Event": "loop",
    "Finished": "loop",
    "Hypothesis": "settings",
    "Request": "settings",
    "SearchSettings": "settings",
    "StreamedTokens": "loop",
    "Scheduler": "scheduler",
    "search": "loop",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'regard.decoding' has no attribute {name!r}")
    value = getattr(import_module(f"regard.decoding.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
