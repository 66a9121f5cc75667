"""A curriculum by length: training begins with the shortest examples, and longer ones come in step by step."""

_AT_FIRST = 0.01  # of the examples


def competence(step: int, steps: int) -> float:
    """Return which share of the examples, the shortest, a step may use, where all of them may be used after `steps`.

    It grows in a line, as the linear competence of Platanios et al. 2019, with the length as the difficulty.

    >>> [competence(step, 100) for step in (1, 50, 100, 1000)]
    [0.01, 0.5, 1.0, 1.0]
    """
    return 1.0 if steps == 0 else min(1.0, max(_AT_FIRST, step / steps))
