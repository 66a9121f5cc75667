"""Input noise for training: no capitals, no final punctuation, joined sentences, unusual characters."""

import random
from collections.abc import Iterator

Pair = tuple[str, str]

NOISE_VERSION = 2
"""Changes whenever the forms do: what was encoded from other ones is encoded anew."""

_ENDS = ".!?"
_SCRIPTS = (  # Unicode's blocks, the emoji more often than the others
    *[(0x1F300, 0x1F64F), (0x1F680, 0x1F6C5), (0x2600, 0x26FF)] * 2,
    *[(0x3B1, 0x3C9), (0x430, 0x44F), (0x5D0, 0x5EA), (0x621, 0x63A), (0x905, 0x939), (0x3042, 0x3093)],
    *[(0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0xE0, 0x17E), (0x2190, 0x22FF)],
)
_RECENT = 1000  # how many pairs are remembered to be put together with others


def noised(pairs: Iterator[Pair], share: float) -> Iterator[Pair]:
    """Return all pairs, and beside this share of them a noisy copy of one.

    >>> list(noised(iter([("Go on.", "Mach weiter.")]), 0.0))
    [('Go on.', 'Mach weiter.')]

    Case is taken from the source alone, for what is written should be right in any case; a missing end is missing in
    both; several sentences in a line are in the same order in both; what no language has a word for is in both as it
    is. The same pairs give the same forms each time.
    """
    draw = random.Random(0)
    recent: list[Pair] = []
    for number, pair in enumerate(pairs):
        yield pair
        if share == 0.0:
            continue
        if draw.random() < share:
            yield _noisy(pair, recent, draw)
        if len(recent) < _RECENT:
            recent.append(pair)
        else:
            recent[number % _RECENT] = pair


def _noisy(pair: Pair, recent: list[Pair], draw: random.Random) -> Pair:
    form = draw.choices(("joined", "strange", "lower", "upper", "endless", "bare"), (8, 3, 4, 1, 4, 3))[0]
    if form == "joined":
        return _joined(pair, [draw.choice(recent or [pair]) for _ in range(draw.choice((1, 1, 1, 2, 3)))])
    if form == "strange":
        mark = _mark(draw)
        return f"{pair[0]} {mark}", f"{pair[1]} {mark}"
    source, target = _without_end(pair) if form in ("endless", "bare") else pair
    if form == "upper":
        return source.upper(), target
    return source if form == "endless" else source.lower(), target


def _mark(draw: random.Random) -> str:
    """Make up something that is written the same in every language: a number, an address, signs of any script."""
    kind = draw.randrange(4)
    if kind == 0:
        return f"{draw.randrange(10 ** draw.randint(1, 7)):,}".replace(",", draw.choice(("", ".", ",")))
    if kind == 1:
        letters = "".join(draw.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=draw.randint(3, 8)))
        return draw.choice((f"{letters}@{letters[:3]}.com", f"www.{letters}.de", f"#{letters}", letters.upper()))
    first, last = draw.choice(_SCRIPTS)
    return "".join(chr(draw.randint(first, last)) for _ in range(draw.randint(1, 3)))


def _joined(pair: Pair, others: list[Pair]) -> Pair:
    lines = [*others, pair]
    return " ".join(source for source, _ in lines), " ".join(target for _, target in lines)


def _without_end(pair: Pair) -> Pair:
    source, target = pair
    if len(source) > 1 and len(target) > 1 and source[-1] in _ENDS and target[-1] in _ENDS:
        return source[:-1].rstrip(_ENDS), target[:-1].rstrip(_ENDS)
    return pair
