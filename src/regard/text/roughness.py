"""Sentences as people really type them: without capitals, without a full stop, several in a line."""

import random
from collections.abc import Iterator

Pair = tuple[str, str]

_ENDS = ".!?"
_RECENT = 1000  # how many pairs are remembered to be put together with others


def roughened(pairs: Iterator[Pair], share: float) -> Iterator[Pair]:
    """Give all pairs, and beside this share of them a rough form of one.

    >>> list(roughened(iter([("Go on.", "Mach weiter.")]), 0.0))
    [('Go on.', 'Mach weiter.')]

    Case is taken from the source alone, for what is written should be right in any case; a missing end is missing in
    both; several sentences in a line are in the same order in both. The same pairs give the same forms each time.
    """
    draw = random.Random(0)
    recent: list[Pair] = []
    for number, pair in enumerate(pairs):
        yield pair
        if share == 0.0:
            continue
        if draw.random() < share:
            yield _rough(pair, recent, draw)
        if len(recent) < _RECENT:
            recent.append(pair)
        else:
            recent[number % _RECENT] = pair


def _rough(pair: Pair, recent: list[Pair], draw: random.Random) -> Pair:
    form = draw.choices(("joined", "lower", "upper", "endless", "bare"), (8, 4, 1, 4, 3))[0]
    if form == "joined":
        return _joined(pair, [draw.choice(recent or [pair]) for _ in range(draw.choice((1, 1, 1, 2, 3)))])
    source, target = _without_end(pair) if form in ("endless", "bare") else pair
    if form == "upper":
        return source.upper(), target
    return source if form == "endless" else source.lower(), target


def _joined(pair: Pair, others: list[Pair]) -> Pair:
    lines = [*others, pair]
    return " ".join(source for source, _ in lines), " ".join(target for _, target in lines)


def _without_end(pair: Pair) -> Pair:
    source, target = pair
    if len(source) > 1 and len(target) > 1 and source[-1] in _ENDS and target[-1] in _ENDS:
        return source[:-1].rstrip(_ENDS), target[:-1].rstrip(_ENDS)
    return pair
