"""The learning rate: its settings, and the rate of each step."""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from regard.configs import Config
from regard.errors import InputError
from regard.model.config import Count, Rate

Positive = Annotated[float, Field(gt=0.0, strict=True)]


class Schedule(Config):
    """Learning rate schedule: linear warmup, then decay."""

    suggestions: ClassVar[Mapping[str, str]] = {"learning_rate": "peak", "lr": "peak", "warmup_steps": "warmup"}

    kind: Literal["inverse-sqrt", "cosine", "linear", "constant"] = "inverse-sqrt"
    peak: Positive | None = None
    """The highest rate; the paper's 1/√(d_model · warmup) unless given."""
    warmup: Count = 4000
    """Number of warmup steps."""
    floor: Rate = 0.0
    """Where cosine and linear end, as a share of the peak."""
    cooldown: Count = 0
    """Number of final steps over which the learning rate decays linearly to zero. With `epochs`, the end of the run is
    estimated from the first epoch.
    """


def learning_rate(schedule: Schedule, step: int, *, d_model: int, total: int) -> float:
    """Return the rate of a step, counted from 1.

    The paper's is d_model^-½ · min(step^-½, step · warmup^-3/2): up in a line for `warmup` steps, then down with the
    inverse square root. `total` is the step where cosine and linear reach their floor.

    >>> rates = [learning_rate(Schedule(warmup=4), step, d_model=16, total=100) for step in (1, 2, 4, 16)]
    >>> [round(rate, 4) for rate in rates]
    [0.0312, 0.0625, 0.125, 0.0625]
    """
    if step < 1:
        raise InputError(f"step is {step}; steps are counted from 1")
    if schedule.cooldown and step > total - schedule.cooldown:
        return _on_the_way(schedule, step, d_model, total) * max(0, total - step + 1) / (schedule.cooldown + 1)
    return _on_the_way(schedule, step, d_model, total)


def _on_the_way(schedule: Schedule, step: int, d_model: int, total: int) -> float:
    warmup = schedule.warmup
    peak = (d_model * max(warmup, 1)) ** -0.5 if schedule.peak is None else schedule.peak
    if step < warmup:
        return peak * step / warmup
    match schedule.kind:
        case "constant":
            return peak
        case "inverse-sqrt":
            return peak * math.sqrt(max(warmup, 1) / step)
    gone = min(1.0, (step - warmup) / max(1, total - warmup))
    left = 1.0 - gone if schedule.kind == "linear" else (1.0 + math.cos(math.pi * gone)) / 2
    return peak * (schedule.floor + (1.0 - schedule.floor) * left)
