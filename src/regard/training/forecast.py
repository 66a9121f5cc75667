"""How large a run is and how long it will take, from two steps of it."""

import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from regard.training.examples import Batch
from regard.training.learner import Learner
from regard.training.losses import cross_entropy, r_drop
from regard.training.preparation import prepare
from regard.training.processes import Processes
from regard.training.recipe import Run


@dataclass(frozen=True)
class Forecast:
    """What a run needs."""

    parameters: int
    memory: int
    """The most memory that the process had while it stepped over its largest batch, in bytes."""
    seconds_per_step: float
    steps: int
    tokens_per_second: float

    def text(self) -> str:
        """Say it in lines."""
        hours = self.seconds_per_step * self.steps / 3600
        return "\n".join(
            [
                f"parameters      {self.parameters:>14,}",
                f"peak memory     {self.memory / 2**20:>14,.0f} MiB",
                f"time per step   {self.seconds_per_step:>14.3f} s, {self.tokens_per_second:,.0f} target tokens/s",
                f"steps           {self.steps:>14,}",
                f"time in all     {hours:>14.2f} h, validation not counted",
            ]
        )


def forecast(run: Run) -> Forecast:
    """Prepare the data, step over the largest batch and over an average one, and forget all of it."""
    with tempfile.TemporaryDirectory() as beside:
        prepared = prepare(run, Path(beside), lambda _: None)
    training = run.training
    loss = r_drop(training.r_drop, training.label_smoothing) if training.r_drop else cross_entropy()
    learner = Learner(run, prepared.model, Processes(), loss)
    plan = prepared.train.plan(budget=training.batch_tokens, seed=training.seed, epoch=0)
    steps_in_epoch = -(-len(plan) // training.accumulate)
    limits = [limit for limit in (training.steps, (training.epochs or 0) * steps_in_epoch) if limit]
    batches = [prepared.train.batch(part) for part in plan[:200]]
    batches.sort(key=_size)
    _timed(learner, batches[-1], 1)
    middle = batches[len(batches) // 2]
    seconds = _timed(learner, middle, 2)
    tokens = sum(batch.tokens for batch in batches) / len(batches)
    per_token = seconds / middle.tokens
    return Forecast(
        parameters=sum(parameter.numel() for parameter in learner.model.parameters()),
        memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        seconds_per_step=per_token * tokens * training.accumulate,
        steps=min(limits),
        tokens_per_second=1 / per_token,
    )


def _size(batch: Batch) -> int:
    return batch.source_BS.numel() + batch.target_BT.numel()


def _timed(learner: Learner, batch: Batch, number: int) -> float:
    began = time.perf_counter()
    learner.gradients(number, [batch])
    learner.step(1e-5, number)
    return time.perf_counter() - began
