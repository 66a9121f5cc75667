"""Sources in, the best targets out, in token numbers."""

from collections.abc import Sequence

import torch

from regard.model import Transformer
from regard.pipeline.engine import Decoding, Engine
from regard.search import Hypothesis, Request, SearchSettings, Watch, search


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
    found = decode_requests(engine, sources, requests, settings, budget=budget)
    model.train(was_training)
    return [hypotheses[0] for hypotheses in found]


def default_limit(engine: Engine, source: Sequence[int]) -> int:
    """Say how long a target may be, unless someone says otherwise."""
    return min(2 * len(source) + 10, engine.longest)


@torch.no_grad()
def decode_requests(
    engine: Engine,
    sources: Sequence[Sequence[int]],
    requests: Sequence[Request],
    settings: SearchSettings,
    *,
    budget: int = 4096,
    never: Sequence[int] = (),
    joining_W: torch.Tensor | None = None,
    watch: Watch | None = None,
) -> list[list[Hypothesis]]:
    """Give the best targets of each source, best first."""
    order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
    found: dict[int, list[Hypothesis]] = {}
    shut = {engine.config.pad_id, engine.start, *never}
    if not order:
        return []
    slots = max(1, budget // (settings.rows * len(sources[order[0]])))
    decoding = Decoding(
        engine, [sources[index] for index in order], settings.rows, attention=settings.coverage_penalty > 0.0
    )
    told = None if watch is None else lambda number, tokens: watch(order[number], tokens)
    for number, hypotheses in search(
        decoding,
        [requests[index] for index in order],
        settings,
        start=engine.start,
        end=engine.end,
        never=sorted(shut),
        joining_W=joining_W,
        slots=slots,
        watch=told,
    ):
        found[order[number]] = hypotheses
    return [found[index] for index in range(len(sources))]
