"""A thread-safe queue of requests, shared by the searches that run in parallel threads."""

from collections.abc import Callable, Sequence
from threading import Lock

from regard.decoding.beams import Sentence
from regard.decoding.logits_processors import check_request
from regard.decoding.settings import Request, SearchSettings

_FEW = 16  # sentences; fewer are not worth an encoding of their own


class Scheduler:
    """Requests in order; it is best to ask for the longest first."""

    def __init__(
        self,
        requests: Sequence[Request],
        settings: SearchSettings,
        *,
        slots: Callable[[int], int] = lambda number: 32,
        searches: int = 1,
    ) -> None:
        """Queue requests; `slots` says how many sentences each may be searched for with at once, itself counted.

        Where several searches share them, none has more than its share at once.
        """
        self._searches = searches
        share = self._share(len(requests))
        for request in requests:
            check_request(request, settings)
        self._sentences = [
            Sentence(number, request, [[] for _ in range(settings.groups)], max(1, min(share, slots(number))))
            for number, request in enumerate(requests)
        ][::-1]
        self._lock = Lock()
        self.closed = False
        """Whether nobody waits for what is found any more."""

    def take(self, beside: Sequence[Sentence]) -> list[Sentence]:
        """Return the next sentences, as many as fit beside these; a few at a time, or none.

        The source is encoded for all that come in together.
        """
        with self._lock:
            if self.closed or not self._sentences:
                return []
            places = min(sentence.slots for sentence in (*beside, self._sentences[-1]))
            space = places - len(beside)
            if beside and (space <= 0 or space < places // 4):
                return []
            # The last ones are shared too, so that no search is left with most of them.
            share = max(_FEW, self._share(len(self._sentences)))
            return [self._sentences.pop() for _ in range(min(space, share, len(self._sentences)))]

    def _share(self, count: int) -> int:
        return -(-count // self._searches)

    def close(self) -> None:
        """Admit nothing more, and have searches end before their next step."""
        self.closed = True
