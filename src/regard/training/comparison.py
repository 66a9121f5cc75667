"""Two ways to compute the same thing, timed in alternation until it is clear which is faster."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

Work = Callable[[], object]

_FEWEST = 15  # rounds
_STABLE = 1.06  # the upper end of an interval over the lower end
_NOISE = 1.05  # what is closer to 1 than this is no difference
_LEAST = 2e-3  # seconds that one timing takes at least


@dataclass(frozen=True)
class Comparison:
    """How many times as fast one way is as another: the median of the rounds, and its 95 % interval."""

    ratio: float
    low: float
    high: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> "Comparison":
        """Take the median of ratios; its interval lies between two of them, whatever their distribution.

        >>> Comparison.of([2.0, 2.1, 1.9, 2.0, 2.2, 1.8, 2.0, 9.0, 2.0]).text("the other")
        '2.0 times as fast as the other'
        """
        ordered, count = sorted(ratios), len(ratios)
        rank = math.floor(count / 2 - 0.98 * math.sqrt(count))
        if rank < 0:  # too few to tell
            return cls(median(ratios), 0.0, math.inf)
        return cls(median(ratios), ordered[rank], ordered[-1 - rank])

    @property
    def faster(self) -> bool:
        """Whether it is clearly faster."""
        return self.low > _NOISE

    @property
    def slower(self) -> bool:
        """Whether it is clearly slower."""
        return self.high < 1 / _NOISE

    def text(self, other: str) -> str:
        """Return the finding in words.

        >>> Comparison(0.76, 0.75, 0.77).text("torch's")
        "24 % slower than torch's"
        >>> Comparison(1.2, 0.9, 1.4).text("torch's")
        "no clear difference from torch's"
        """
        if not (self.faster or self.slower):
            return f"no clear difference from {other}"
        if self.slower:
            return f"{100 * (1 - self.ratio):.0f} % slower than {other}"
        if self.ratio < 1.5:
            return f"{100 * (self.ratio - 1):.0f} % faster than {other}"
        return f"{self.ratio:.1f} times as fast as {other}"


def compare(ours: Work, theirs: Work, seconds: float) -> Comparison:
    """Time both in turns until the interval of the ratio is narrow, or for so many seconds."""
    end = time.perf_counter() + seconds
    ours_calls, theirs_calls = _calls(ours), _calls(theirs)
    ratios: list[float] = []
    while not ratios or time.perf_counter() < end:
        first_is_ours = len(ratios) % 2 == 0  # neither is always the one that runs into a warm cache
        mine = _seconds(ours, ours_calls) if first_is_ours else 0.0
        other = _seconds(theirs, theirs_calls)
        mine = mine if first_is_ours else _seconds(ours, ours_calls)
        ratios.append(other / mine)
        found = Comparison.of(ratios)
        if len(ratios) >= _FEWEST and found.high < _STABLE * found.low:
            break
    return found


def _calls(work: Work) -> int:
    """Return how many calls make up one timing, after two to warm up."""
    work()
    return max(3, math.ceil(_LEAST / max(_seconds(work, 1), 1e-9)))


def _seconds(work: Work, calls: int) -> float:
    """Return how long the fastest of some calls takes: what other programs took from the others does not count."""
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)
