"""Sources in, the best targets out, in token numbers."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import chain

import torch
from torch import Tensor

from regard.model import Transformer
from regard.native import threads_for_kernels
from regard.pipeline.engine import Decoding, Engine
from regard.search import Event, Finished, Hypothesis, Request, SearchSettings, search


def decode(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    *,
    beam: int = 5,
    length_penalty: float = 1.0,
    budget: int = 4096,
) -> list[Hypothesis]:
    """Give the best target of each source: token numbers without start and end, and its score.

    Sources come with their end. They are decoded longest first, as many together as keep beams times tokens within
    the budget; which ones are together makes no difference to any.
    """
    was_training = model.training
    model.eval()
    engine = Engine(model)
    requests = [Request(limit=default_limit(engine, source)) for source in sources]
    settings = SearchSettings(beam=beam, length_penalty=length_penalty)
    try:
        found = decode_requests(engine, sources, requests, settings, budget=budget)
    finally:
        model.train(was_training)
    return [hypotheses[0] for hypotheses in found]


def default_limit(engine: Engine, source: Sequence[int]) -> int:
    """Say how long a target may be, unless someone says otherwise."""
    return min(2 * len(source) + 10, engine.longest)


def decode_requests(
    engine: Engine,
    sources: Sequence[Sequence[int]],
    requests: Sequence[Request],
    settings: SearchSettings,
    *,
    never: Sequence[int] = (),
    joining_W: Tensor | None = None,
    budget: int = 4096,
) -> list[list[Hypothesis]]:
    """Give the best targets of each source, best first."""
    # Longest first: what is decoded side by side is then of about the same length.
    order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
    events = decode_events(
        engine,
        [sources[index] for index in order],
        [requests[index] for index in order],
        settings,
        never=never,
        joining_W=joining_W,
        budget=budget,
    )
    found = {order[event.number]: event.hypotheses for event in events if isinstance(event, Finished)}
    return [found[index] for index in range(len(sources))]


def decode_events(
    engine: Engine,
    sources: Sequence[Sequence[int]],
    requests: Sequence[Request],
    settings: SearchSettings,
    *,
    never: Sequence[int] = (),
    joining_W: Tensor | None = None,
    budget: int = 4096,
    stream: bool = False,
) -> Iterator[Event]:
    """Give what a search finds, as it finds it."""
    words = None
    if settings.shortlist:
        assert engine.shortlist is not None, "whoever asks for a shortlist has seen that there is one"
        words = [
            engine.shortlist.words(source, [engine.end, *request.prefix, *chain(*request.required)])
            for source, request in zip(sources, requests, strict=True)
        ]
    decoding = Decoding(engine, sources, settings.rows, attention=settings.coverage_penalty > 0.0, words=words)
    events = search(
        decoding,
        requests,
        settings,
        end=engine.end,
        never=[engine.config.pad_id, engine.start, *never],
        joining_W=joining_W,
        slots=lambda number: budget // (settings.rows * max(1, len(sources[number]))),
        stream=stream,
    )
    while True:
        # Around each step: whoever takes the events may want gradients, and torch's threads, in between.
        with torch.no_grad(), threads_for_kernels() if engine.fast_decoder is not None else nullcontext():
            event = next(events, None)
        if event is None:
            return
        yield event
