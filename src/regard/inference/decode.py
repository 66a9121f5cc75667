"""Sources in, the best targets out, in token numbers."""

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn

from regard.acceleration.backend import Backend
from regard.acceleration.candidates import candidate_selector
from regard.decoding import Event, Finished, Hypothesis, Request, Scheduler, SearchSettings, search
from regard.decoding.beams import TextOf
from regard.errors import InputError
from regard.inference.backends import choose_backend
from regard.kernels.dispatch import one_thread_for_torch, threads_for_kernels
from regard.model import Transformer

_WORTH_A_SEARCH = 16  # sentences; fewer are better searched for together, by all threads
_WORTH_THREADS = 8192  # numbers in all states; for fewer, waking torch's threads takes longer than it saves


def decode(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    *,
    beam: int = 5,
    length_penalty: float = 1.0,
    budget: int = 4096,
) -> list[Hypothesis]:
    """Return the best target of each source: token numbers without start and end, and its score.

    Sources come with their end. They are decoded longest first, as many together as keep beams times tokens within
    the budget; which ones are together makes no difference to any.
    """
    settings = SearchSettings(beam=beam, length_penalty=length_penalty)
    with _evaluation_mode(model):
        backend = choose_backend(model)
        requests = [Request(limit=target_limit(backend, source, settings)) for source in sources]
        found = decode_requests(backend, sources, requests, settings, budget=budget)
    return [hypotheses[0] for hypotheses in found]


@contextmanager
def _evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode for a while; then each of its modules is again in the mode that it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def default_limit(backend: Backend, source: Sequence[int]) -> int:
    """Return how many tokens a target may have, unless someone says otherwise."""
    return min(2 * len(source) + 10, backend.longest)


def target_limit(backend: Backend, source: Sequence[int], settings: SearchSettings, needed: int = 0) -> int:
    """Return how many tokens a target may have: `max_length`, or what follows from the source and is needed."""
    if settings.max_length:
        return min(settings.max_length, backend.longest)
    return min(max(default_limit(backend, source), needed + 10, settings.min_length + 10), backend.longest)


def decode_requests(
    backend: Backend,
    sources: Sequence[Sequence[int]],
    requests: Sequence[Request],
    settings: SearchSettings,
    *,
    never: Sequence[int] = (),
    text_of: TextOf | None = None,
    budget: int = 4096,
) -> list[list[Hypothesis]]:
    """Return the best targets of each source, best first.

    The sources of a decoder alone are empty; its prompts are the prefixes of the requests.
    """
    _check_padding(sources, backend.config.pad_id)
    # Longest first: what is decoded side by side is then of about the same length.
    order = sorted(range(len(sources)), key=lambda index: -_length(sources[index], requests[index]))
    decoder = _Decoder(
        backend,
        [sources[index] for index in order],
        [requests[index] for index in order],
        settings,
        never=never,
        text_of=text_of,
        budget=budget,
        searches=max(1, min(torch.get_num_threads(), len(sources) // _WORTH_A_SEARCH)),
    )
    found = {order[event.number]: event.hypotheses for event in decoder.finished()}
    return [found[index] for index in range(len(sources))]


def decode_stream(
    backend: Backend, source: Sequence[int], request: Request, settings: SearchSettings, *, never: Sequence[int] = ()
) -> Iterator[Event]:
    """Return what is found for a source, as it settles."""
    return _Decoder(backend, [source], [request], settings, never=never).events(stream=True)


def _check_padding(sources: Sequence[Sequence[int]], pad: int) -> None:
    """Raise an `InputError` where padding stands before other tokens: what positions these have is not defined."""
    for number, source in enumerate(sources):
        if pad in source and any(token != pad for token in source[source.index(pad) :]):
            raise InputError(f"source {number} has padding (token {pad}) before other tokens")


def _length(source: Sequence[int], request: Request) -> int:
    """Return how many tokens are read before the first one is written."""
    return len(source) + len(request.prefix)


def _required_tokens(request: Request) -> list[int]:
    return [] if request.constraints is None else request.constraints.useful_tokens()


class _Decoder:
    """Decodes sources by one search, or by several at once that share them."""

    def __init__(
        self,
        backend: Backend,
        sources: Sequence[Sequence[int]],
        requests: Sequence[Request],
        settings: SearchSettings,
        *,
        never: Sequence[int],
        text_of: TextOf | None = None,
        budget: int = 4096,
        searches: int = 1,
    ) -> None:
        if backend.config.kind == "decoder-only" and any(map(len, sources)):
            raise InputError("a decoder alone reads no source: what it goes on from is the prefix of a request")
        if backend.config.kind == "decoder-only" and settings.coverage_penalty > 0.0:
            raise InputError("coverage_penalty is of the attention to a source, which a decoder alone does not have")
        self._backend, self._sources, self._settings, self._searches = backend, sources, settings, searches
        self._never, self._text_of = [backend.config.pad_id, backend.start, *never], text_of
        self._scheduler = Scheduler(
            requests,
            settings,
            slots=lambda number: budget // (settings.rows * max(1, _length(sources[number], requests[number]))),
            searches=searches,
        )
        read = sum(_length(source, request) for source, request in zip(sources, requests, strict=True))
        self._states = (read + len(sources) * settings.rows) * backend.config.d_model
        self._words = None
        if settings.shortlist:
            assert backend.shortlist is not None, "whoever asks for a shortlist has seen that there is one"
            self._words = [
                backend.shortlist.words(source, [backend.end, *request.prefix, *_required_tokens(request)])
                for source, request in zip(sources, requests, strict=True)
            ]

    def finished(self) -> list[Finished]:
        """Return what was found for all sources."""
        if self._searches == 1:
            return self._all_of_one_search()
        # Threads of this process: most of the time is spent in kernels and in torch, where Python lets others go on.
        with one_thread_for_torch(), ThreadPoolExecutor(self._searches) as pool:
            try:
                parts = [pool.submit(self._all_of_one_search) for _ in range(self._searches)]
                wait(parts, return_when=FIRST_EXCEPTION)
            finally:
                self._scheduler.close()  # if one of them fails, or someone interrupts us, the others end too
            return [event for part in parts for event in part.result()]

    def _all_of_one_search(self) -> list[Finished]:
        return [event for event in self.events() if isinstance(event, Finished)]

    def _threads(self) -> AbstractContextManager[None]:
        """Return the context in which a step has the threads that it is worth."""
        if self._backend.uses_kernels:
            return threads_for_kernels()
        return nullcontext() if self._states > _WORTH_THREADS else one_thread_for_torch()

    def events(self, *, stream: bool = False) -> Iterator[Event]:
        """Return what one search finds, as it finds it."""
        backend, settings = self._backend, self._settings
        decoder = backend.new_decoder(
            self._sources, settings.rows, attention=settings.coverage_penalty > 0.0, words=self._words
        )
        events = search(
            decoder,
            self._scheduler,
            settings,
            end=backend.end,
            never=self._never,
            start=backend.start,
            text_of=self._text_of,
            selector=candidate_selector(),
            stream=stream,
        )
        while True:
            # Around each step: whoever takes the events may want gradients, and torch's threads, in between.
            with torch.no_grad(), self._threads():
                event = next(events, None)
            if event is None:
                return
            yield event
