"""How far a run is, and what its last steps were like."""

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from regard.training.callbacks import StepReport
from regard.training.examples import Position


@dataclass
class Progress:
    """How far a run is: all of its state that is not a tensor."""

    step: int = 0
    position: Position = field(default_factory=Position)
    seconds: float = 0.0
    bad_steps: int = 0
    """Steps in a row that were not finite."""
    scores: dict[int, float] = field(default_factory=dict)
    """The value of each validation, by its step; higher is better."""

    @property
    def ranked(self) -> list[int]:
        """The steps that were validated, the best first; of equals, the first."""
        return sorted(self.scores, key=lambda step: (-self.scores[step], step))

    @property
    def best(self) -> int | None:
        """The step with the best value."""
        return self.ranked[0] if self.scores else None

    def content(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return asdict(self)

    @classmethod
    def of(cls, content: dict[str, Any]) -> "Progress":
        """Read it from JSON."""
        fields = {key: content[key] for key in ("step", "seconds", "bad_steps")}
        scores = {int(step): value for step, value in content["scores"].items()}
        return cls(**fields, position=Position(**content["position"]), scores=scores)


class Recent:
    """What happened since the last report."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Forget what was."""
        self._losses: list[float] = []
        self._norm = self._rate = 0.0
        self._tokens = self._skipped = 0
        self._began = time.perf_counter()

    def add(self, loss: float, norm: float, rate: float, tokens: int, good: bool) -> None:
        """Take a step in."""
        if good:
            self._losses.append(loss)
        self._skipped += not good
        self._norm, self._rate = norm, rate
        self._tokens += tokens

    def report(self, step: int, epoch: float, seconds: float) -> StepReport:
        """Return a report of the steps since the last one, and start anew."""
        loss = sum(self._losses) / len(self._losses) if self._losses else float("nan")
        speed = self._tokens / (time.perf_counter() - self._began)
        report = StepReport(step, epoch, loss, self._rate, self._norm, speed, seconds, self._skipped)
        self.start()
        return report
