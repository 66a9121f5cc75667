"""How large a run is and how long it will take, from a few steps of it."""

import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from regard.acceleration.process import prepare_process
from regard.devices import resolve_device
from regard.training.examples import Batch, Position, StepLoader
from regard.training.losses import losses_of
from regard.training.preparation import prepare
from regard.training.processes import Processes
from regard.training.recipe import Run
from regard.training.train_step import TrainStep


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
        """Return the forecast as lines of text."""
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
    prepare_process()
    with tempfile.TemporaryDirectory() as beside:
        prepared = prepare(run, Path(beside), lambda _: None)
    training = run.training
    if training.threads is not None:
        torch.set_num_threads(training.threads)
    train_step = TrainStep(run, prepared.model, Processes(resolve_device(training.device)), losses_of(training))
    loader = StepLoader(prepared.train, budget=training.batch_tokens, accumulate=1, seed=training.seed)
    batches = [batch for _, (batch,) in islice(loader.steps_from(Position()), 200)]
    batches.sort(key=_size)
    steps = training.total_steps(-(-loader.steps_in(0) // training.accumulate))
    _timed(train_step, batches[-1], steps)
    middle = batches[len(batches) // 2]
    seconds = _mean_seconds(train_step, middle, steps, min(steps, training.r_drop_from - 1))
    tokens = sum(batch.tokens for batch in batches) / len(batches)
    per_token = seconds / middle.tokens
    return Forecast(
        parameters=sum(parameter.numel() for parameter in train_step.model.parameters()),
        memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        seconds_per_step=per_token * tokens * training.accumulate,
        steps=steps,
        tokens_per_second=1 / per_token,
    )


def _size(batch: Batch) -> int:
    return batch.source_BS.numel() + batch.target_BT.numel()


def _mean_seconds(train_step: TrainStep, batch: Batch, steps: int, of_one_pass: int) -> float:
    """Return the mean of all steps, of which the first so many make one pass where the last may make two."""
    last = _timed(train_step, batch, steps)
    return last if of_one_pass == 0 else last + (_timed(train_step, batch, of_one_pass) - last) * of_one_pass / steps


def _timed(train_step: TrainStep, batch: Batch, number: int) -> float:
    began = time.perf_counter()
    result = train_step.gradients(number, [batch])
    train_step.step(1e-5, number, result)
    result.read()
    return time.perf_counter() - began
