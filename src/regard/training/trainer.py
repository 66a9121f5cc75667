"""The training loop: step, validate, save and resume."""

import math
import shutil
import time
from pathlib import Path
from typing import Any

from regard.errors import ConfigError, DivergedError
from regard.files import new_directory
from regard.inference.backends import choose_backend
from regard.memory import older_objects_left_alone
from regard.model import Transformer
from regard.model.directory import (
    CHECKPOINTS,
    SNAPSHOTS,
    SavedModel,
    check_build,
    check_modules,
    load_tensors,
    read_model_directory,
    write_model_directory,
)
from regard.model.transformer import plain_model
from regard.model.undescribed import lost_variations, same_names
from regard.training.averaging import average, chosen_snapshots
from regard.training.callbacks import Callback, MetricsFile
from regard.training.checkpoints import (
    Checkpoint,
    Tensors,
    finish,
    newest_whole,
    prune,
    remove_after,
    remove_unfinished,
    step_directories,
    step_name,
    step_of,
    write_checkpoint,
    write_parts,
)
from regard.training.environment import differences, environment
from regard.training.examples import Batch, Cuts, Position, StepLoader
from regard.training.final_model import FinalModel, better_of
from regard.training.losses import Loss, losses_of
from regard.training.preparation import Prepared, Sides
from regard.training.processes import Processes
from regard.training.progress import Progress, Recent
from regard.training.recipe import Run
from regard.training.schedule import learning_rate
from regard.training.signals import Stop
from regard.training.train_step import Build, StepResult, TrainStep
from regard.training.validation import ValidationResult, Validator

_BAD_STEPS = 10  # in a row, before training gives up


class Trainer:
    """Trains the model of a run in a directory."""

    def __init__(
        self,
        run: Run,
        out: Path,
        prepared: Prepared,
        processes: Processes,
        callback: Callback,
        *,
        loss: Loss | None = None,
        build: Build = Transformer,
    ) -> None:
        self._run, self._out, self._prepared, self._processes = run, out, prepared, processes
        self._callback, self._metrics = callback, MetricsFile(out)
        self._progress = Progress()
        training = run.training
        loss_at = losses_of(training) if loss is None else lambda step: loss
        self._build, self._loss = build, None if loss is None else _qualified_name(loss)
        self._train_step = TrainStep(run, prepared.model, processes, loss_at, build)
        self._modules = self._train_step.undescribed_modules
        if self._modules:
            callback.on_message(f"not in the configuration, and run as they are written: {', '.join(self._modules)}")
        cuts = Cuts.of(prepared.source, prepared.target, training.subword_dropout, seed=training.seed)
        self._loader = StepLoader(
            prepared.train,
            budget=training.batch_tokens,
            accumulate=training.accumulate,
            seed=training.seed,
            cuts=cuts,
            workers=training.workers,
            pinned=processes.device.type == "cuda",
            curriculum=training.curriculum,
        )
        self.total = training.total_steps(self._loader.steps_in(0))
        self._environment = environment(
            precision=training.precision,
            processes=processes.count,
            sharded=self._train_step.sharded,
            device=processes.device,
        )
        self._validator: Validator | None = None
        self._result: ValidationResult | None = None
        if prepared.valid is not None and processes.is_main:
            sides = Sides(prepared.source, prepared.target)
            self._validator = Validator(prepared.run, run.data.valid, prepared.valid, sides)
            # A plain copy: what validates is the model as it is read, not as kernels compute it.
            self._validated_model = build(prepared.model).to(processes.device).eval()
            _check_separate(self._train_step.model, self._validated_model)
            if run.validation.metric != "loss" and run.shape != "encoder-only":
                callback.on_message(f"validation decodes with the {choose_backend(self._validated_model).name}")
        self._recent = Recent()
        self._unread: list[tuple[StepResult, float, int]] = []
        """What came of the last steps, and their learning rates and tokens."""

    @property
    def step(self) -> int:
        """How many steps are done."""
        return self._progress.step

    @property
    def parameters(self) -> int:
        """How many parameters the model has."""
        return sum(parameter.numel() for parameter in self._train_step.model.parameters())

    def lost_variations(self) -> list[str]:
        """Return what attention layers of the model's own lack of what its configuration gives them."""
        return lost_variations(self._train_step.model, plain_model(self._prepared.model))

    def resume(self) -> None:
        """Go on from the newest whole checkpoint, if there is one."""
        found = newest_whole(self._out / CHECKPOINTS, self._callback.on_message)
        if found is not None:
            self._go_on_from(found)
        elif (beginning := self._run.training.start_from) is not None:
            _, weights, modules = read_model_directory(beginning)
            check_build(beginning, modules, None if self._build is Transformer else self._build)
            check_modules(beginning, modules, self._modules)
            load_tensors(self._build(self._prepared.model), weights, source=beginning)  # all of them, and no others
            self._train_step.load({"weights": weights, "running": weights, "moments": {}}, beginning)
            self._callback.on_message(f"starting from the weights of {beginning}")
        steps = self._processes.all_gather(self.step)
        if len(set(steps)) > 1:
            raise ConfigError(f"processes would go on from steps {steps}; {self._out} must be one directory for all")
        if self._processes.is_main:  # what a run that was killed made after its last state will be made again
            for kind in (CHECKPOINTS, SNAPSHOTS):
                remove_after(self._out / kind, self.step)
                remove_unfinished(self._out / kind)
            self._metrics.forget_after(self.step)

    def _go_on_from(self, found: Checkpoint) -> None:
        if found.state["data"] != self._prepared.fingerprints:
            raise ConfigError(
                f"{self._out} was trained on other data, or with other tokenizers, than the run names now"
            )
        before = tuple(found.state.get("modules", ()))
        if not same_names(before, self._modules):
            trained, now = (", ".join(names) or "those of its configuration" for names in (before, self._modules))
            raise ConfigError(f"{self._out} was trained with other modules: {trained}; now they are {now} (build=)")
        self._check_loss(found.state)
        self._train_step.load(found.tensors, found.path)
        self._progress = Progress.of(found.state["progress"])
        self._callback.on_message(f"resumed at step {self.step:,} of {self.total:,}")
        if changed := differences(found.state["environment"], self._environment):
            self._callback.on_message(
                f"results may differ in the last bits from a run without a pause: {'; '.join(changed)}"
            )

    def _check_loss(self, state: dict[str, Any]) -> None:
        if "loss" not in state:  # of a version that did not record it
            return
        before, now = ((name,) if isinstance(name, str) else () for name in (state["loss"], self._loss))
        if not same_names(before, now):
            trained, given = ("".join(name) or "that of its run" for name in (before, now))
            raise ConfigError(f"{self._out} was trained with the loss {trained}; now it is {given} (loss=)")

    def train(self, stop: Stop) -> bool:
        """Train until the run's end, and say whether it was reached: a signal ends it sooner."""
        with older_objects_left_alone():
            return self._train(stop)

    def _train(self, stop: Stop) -> bool:
        self._stop_if_diverged()
        self._recent.start()
        while not self._finished():
            for after, batches in self._loader.steps_from(self._progress.position, self.step):
                if self._stopping(stop):
                    self._save()
                    return False
                self._take_step(batches, after)
                self._after_step(epoch_ended=after.step == 0)
                if self._finished():
                    break
        self._save()
        return True

    def finish(self) -> FinalModel | None:
        """Write the model that the run ends with into its directory; return it in the process that has done so.

        It is the average that the run asks for, unless the last weights validate better.
        """
        if bad := self._progress.bad_steps:
            self._callback.on_message(
                f"left out at the end, for their losses or gradients were not finite: {bad} steps"
            )
        last = FinalModel(f"the last ones, of step {self.step:,}", self._train_step.whole_weights())
        running = self._train_step.whole_weights(running=True) if self._run.averaging.kind == "running" else None
        if not self._processes.is_main:
            return None
        if self._progress.bad_steps >= self.step > 0:
            raise DivergedError(f"none of {self.step} steps had a finite loss and gradient; no model comes of this run")
        model, comparison = self._average(running) or last, ""
        if self._validator is not None:
            # The one that was validated last comes first.
            pair = (model, last) if running is not None else (last, model)
            model, comparison = better_of(*pair, self._validated)
        self._write(model)
        self._callback.on_message(f"the model's weights are {model.text}{comparison}")
        if model.result is not None:
            self._metrics.ended(self.step, model.origin, model.result)
        return model

    def _average(self, running: Tensors | None) -> FinalModel | None:
        averaging = self._run.averaging
        if running is not None:
            return FinalModel("their running mean over all steps", running)
        if averaging.kind == "none":
            return None
        count = min(averaging.count, len(step_directories(self._out / SNAPSHOTS)))
        snapshots = chosen_snapshots(self._out, count, self._progress.scores if averaging.kind == "best" else None)
        steps = ", ".join(f"{step_of(path):,}" for path in snapshots)
        weights = {name: tensor.to(self._processes.device) for name, tensor in average(snapshots).tensors.items()}
        return FinalModel(f"the mean of {len(snapshots)} snapshots, of steps {steps}", weights)

    def _write(self, model: FinalModel) -> None:
        for name, tensor in model.weights.items():
            if not tensor.isfinite().all():
                raise DivergedError(f"after step {self.step:,} {name} is not finite; no model comes of this run")
        if model.result is not None and not math.isfinite(loss := model.result.loss):
            raise DivergedError(f"after step {self.step:,} the validation loss is {loss}; no model comes of this run")
        write_model_directory(self._out, SavedModel(self._prepared.model, model.weights, self._modules))

    def _finished(self) -> bool:
        training, progress = self._run.training, self._progress
        if training.steps is not None and progress.step >= training.steps:
            return True
        if training.epochs is not None and progress.position.epoch >= training.epochs:
            return True
        patience = self._run.validation.patience
        if patience is None or progress.best is None:
            return False
        since = sum(step > progress.best for step in progress.scores)
        return since >= patience

    def _take_step(self, batches: list[Batch], after: Position) -> None:
        began = time.perf_counter()
        progress = self._progress
        number = progress.step + 1
        rate = learning_rate(self._run.schedule, number, d_model=self._prepared.model.d_model, total=self.total)
        result = self._train_step.gradients(number, batches)
        self._train_step.step(rate, number, result)
        progress.step, progress.position = number, after
        progress.seconds += time.perf_counter() - began
        self._unread.append((result, rate, sum(batch.tokens for batch in batches)))
        if result.is_on_cpu:
            self._read()
        self._stop_if_diverged()

    def _read(self) -> None:
        """Read what came of the steps since the last reading; a device is waited for here, and not at every step."""
        began = time.perf_counter()
        for result, rate, tokens in self._unread:
            loss, norm, good = result.read()
            self._progress.bad_steps = 0 if good else self._progress.bad_steps + 1
            self._recent.add(loss, norm, rate, tokens, good)
        self._unread.clear()
        self._progress.seconds += time.perf_counter() - began

    def _stop_if_diverged(self) -> None:
        if self._progress.bad_steps >= _BAD_STEPS:
            self._save()
            raise DivergedError(
                f"the loss or its gradient was not finite in {_BAD_STEPS} steps in a row, up to step {self.step:,}; "
                f"the weights from before them are in {self._out / CHECKPOINTS / step_name(self.step)}"
            )

    def _after_step(self, *, epoch_ended: bool) -> None:
        step, every = self.step, self._run.validation.every
        validating = self._finished() or (epoch_ended if every is None else step % every == 0)
        if step % self._run.training.report_every == 0 or validating:
            self._read()
            self._stop_if_diverged()
            self._report()
        if validating:
            self._validate()
            self._recent.start()
        if step % self._run.checkpoints.every == 0:
            self._save()

    def _report(self) -> None:
        position = self._progress.position
        within = position.step / self._loader.steps_in(position.epoch) if position.step else 0.0
        report = self._recent.report(self.step, position.epoch + within, self._progress.seconds)
        if self._processes.is_main:
            self._metrics.on_step(report)
            self._callback.on_step(report, self.total)

    def _validate(self) -> None:
        began = time.perf_counter()
        running = self._run.averaging.kind == "running"
        weights = self._train_step.whole_weights(running=running)
        value = None
        if self._processes.is_main:
            if self._validator is not None:
                result = self._validated(weights)
                value = result.value()
                best = self._progress.best
                self._metrics.on_validation(self.step, result)
                self._callback.on_validation(self.step, result, best is None or value > self._progress.scores[best])
            path = self._out / SNAPSHOTS / step_name(self.step)
            shutil.rmtree(path, ignore_errors=True)
            write_model_directory(path, SavedModel(self._prepared.model, weights, self._modules))
        value = self._processes.broadcast(value)
        if value is not None:
            self._progress.scores[self.step] = value
        if self._processes.is_main:
            self._prune_snapshots()
        self._progress.seconds += time.perf_counter() - began

    def _validated(self, weights: Tensors) -> ValidationResult:
        """Validate weights, unless they are those of the last validation."""
        assert self._validator is not None, "there is validation data"
        validated = dict(self._validated_model.named_parameters())
        if self._result is None or not all(validated[name].equal(tensor) for name, tensor in weights.items()):
            self._validated_model.to(next(iter(weights.values())).dtype)
            load_tensors(self._validated_model, weights, source=self._out)
            self._result = self._validator.validate(self._validated_model)
        return self._result

    def _prune_snapshots(self) -> None:
        averaging = self._run.averaging
        best = self._progress.ranked[: averaging.count if averaging.kind == "best" else 1]
        prune(self._out / SNAPSHOTS, averaging.count if averaging.kind == "last" else 1, frozenset(best))

    def _stopping(self, stop: Stop) -> bool:
        # Asked together, so that all processes stop at the same step.
        (asked,) = self._processes.all_reduce_scalars(float(stop.signal is not None))
        return asked > 0

    def _last_saved(self) -> int:
        directories = step_directories(self._out / CHECKPOINTS)
        return step_of(directories[-1]) if directories else -1

    def _save(self) -> None:
        if self._processes.broadcast(self._last_saved()) == self.step:
            return
        self._read()
        parent = self._out / CHECKPOINTS
        state = {
            "progress": self._progress.content(),
            "data": self._prepared.fingerprints,
            "environment": self._environment,
            "modules": list(self._modules),
            "loss": self._loss,
        }
        if self._train_step.sharded:
            self._save_parts(parent, state)
        elif self._processes.is_main:
            write_checkpoint(parent, self.step, state, self._train_step.tensors())
        self._processes.barrier()
        if self._processes.is_main:
            prune(parent, self._run.checkpoints.keep)

    def _save_parts(self, parent: Path, state: dict[str, Any]) -> None:
        """Have each process write its part into one directory, which appears when all are done."""
        processes = self._processes
        parts = self._train_step.tensors()
        if processes.is_main:
            with new_directory(parent / step_name(self.step)) as fresh:
                processes.broadcast(str(fresh))
                files = write_parts(fresh, parts, rank=0, processes=processes.count)
                for others in processes.all_gather(files):
                    files |= others
                finish(fresh, state, files)
        else:
            fresh = Path(processes.broadcast(None))
            processes.all_gather(write_parts(fresh, parts, rank=processes.rank, processes=processes.count))


def _qualified_name(loss: Loss) -> str:
    named = loss if hasattr(loss, "__qualname__") else type(loss)
    return f"{named.__module__}.{named.__qualname__}"


def _check_separate(trained: Transformer, validated: Transformer) -> None:
    """Refuse a build whose models share parts: in evaluation mode the one would change the other."""
    mine, theirs = ({*model.modules(), *model.parameters()} for model in (trained, validated))
    if not mine.isdisjoint(theirs):
        raise ConfigError(
            "build must return a new model each time it is called: the model that is validated "
            "has modules or parameters of the one that is trained"
        )
