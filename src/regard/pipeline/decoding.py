"""A model put to work: sources in, the best targets out."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.errors import InputError
from regard.model import Transformer
from regard.search import Hypothesis, beam_search
from regard.text import padded


class ModelDecoding:
    """The rows of a search, decoded by a Transformer with its cache."""

    def __init__(self, model: Transformer, source_BS: Tensor) -> None:
        self._model = model
        self._cache = model.start_cache(model.encode(source_BS))

    def step(self, tokens_R: Tensor) -> Tensor:
        """Take a token for each row in; give the log-probabilities of the next."""
        states_R1D = self._model.decode(tokens_R[:, None], cache=self._cache)
        return self._model.logits(states_R1D)[:, 0].float().log_softmax(-1)

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order."""
        self._cache.select(rows)


@torch.no_grad()
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
    config = model.config
    if config.bos_id is None or config.eos_id is None:
        raise InputError("the model's config has no bos_id and eos_id; a search needs to know where to start and end")
    # The start takes a position too, and a learned table has an end.
    longest = config.max_positions - config.position_offset - 1 if config.positions == "learned" else 10**9
    order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
    found: dict[int, Hypothesis] = {}
    first = 0
    was_training = model.training
    model.eval()
    while first < len(order):
        count = max(1, budget // (beam * len(sources[order[first]])))
        chosen = order[first : first + count]
        rows = ModelDecoding(model, padded([sources[index] for index in chosen], config.pad_id))
        best = beam_search(
            rows,
            limits=[min(2 * len(sources[index]) + 10, longest) for index in chosen],
            beam=beam,
            start=config.bos_id,
            end=config.eos_id,
            forbidden=(config.pad_id, config.bos_id),
            length_penalty=length_penalty,
        )
        found.update(zip(chosen, (hypotheses[0] for hypotheses in best), strict=True))
        first += count
    model.train(was_training)
    return [found[index] for index in range(len(sources))]
