"""From a run to a trained model in a directory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from regard.acceleration.process import prepare_process
from regard.devices import resolve_device
from regard.errors import LostProcessError, StoppedError
from regard.kernels.bindings import kernels
from regard.memory import allocator
from regard.model import Transformer
from regard.ops import applied_rate
from regard.spinning import adaptive_spinning
from regard.tasks.task import Task
from regard.training.callbacks import Callback, CallbackList
from regard.training.environment import cpu_name
from regard.training.losses import Loss
from regard.training.model_card import write_card
from regard.training.preparation import prepare
from regard.training.processes import Processes
from regard.training.recipe import Run
from regard.training.run_lock import locked, owned
from regard.training.signals import stop_on_signals
from regard.training.train_step import Build
from regard.training.trainer import Trainer


def train(
    run: Run | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    loss: Loss | None = None,
    build: Build = Transformer,
    task: Task | None = None,
    callback: Callback | None = None,
) -> Path:
    """Train a model in the directory `out`; return the directory, which `regard.load` then reads.

    `run` is a `Run`, the path of a run file, or the name of a recipe such as "dates".

    >>> import regard, tempfile
    >>> from regard.training import Run
    >>> run = Run.from_toml('''
    ... data.train = [{kind = "dates", count = 200}]
    ... tokenizer = {vocab_size = 400}
    ... model = {preset = "tiny", d_model = 16, num_heads = 2, encoder_layers = 1, decoder_layers = 1}
    ... training = {steps = 2, batch_tokens = 500}
    ... ''')
    >>> directory = regard.train(run, tempfile.mkdtemp())
    >>> regard.Transformer.load(directory).config.d_model
    16

    A run that was stopped in this directory is resumed, with the same `loss` and `build`. `loss` takes the place of
    cross-entropy: a function of the model and a batch that returns the loss summed over the target tokens. `build` is a
    function from a config to a new model, where that is not `Transformer` itself. `task` is a task of your own, in
    place of the run's. `callback` follows the run, which prints nothing by itself: an object with the methods of
    `regard.training.Callback`. A signal stops training with a `StoppedError`.
    """
    prepare_process()
    run = _loaded(run, task)
    callback = CallbackList() if callback is None else callback
    directory = Path(out)
    if run.training.threads is not None:
        torch.set_num_threads(run.training.threads)
    processes = Processes(resolve_device(run.training.device))
    callback = callback if processes.is_main else CallbackList()
    try:
        with adaptive_spinning(), stop_on_signals() as stop, _run_directory(directory, run, processes, callback):
            trainer = _prepared_trainer(run, directory, processes, callback, loss, build)
            stop.after_step = True
            if not trainer.train(stop):
                raise StoppedError(stop.signal or 15, trainer.step)
            model = trainer.finish()
            if model is not None:
                write_card(directory, run, model)
                callback.on_message(f"{directory}: trained, {trainer.step:,} steps")
            processes.barrier()
    except RuntimeError as error:
        if processes.count == 1 or not processes.lost(error):
            raise
        raise LostProcessError(
            "another process of this run was lost; run the same command to resume from the last checkpoint"
        ) from None
    finally:
        processes.close()
    return directory


def _loaded(run: Run | str | os.PathLike[str], task: Task | None) -> Run:
    """Return a run, with a task in place of its own if one is given."""
    run = run if isinstance(run, Run) else Run.load(run)
    if task is None:
        return run
    changed = run.model_copy(update={"task": (task,)})
    changed.check()
    return changed


@contextmanager
def _run_directory(out: Path, run: Run, processes: Processes, callback: Callback) -> Iterator[None]:
    """Have the directory of the run, which the first process has for all."""
    if processes.is_main:
        with locked(out, callback.on_message), owned(out, run):
            yield
    else:
        yield


def _prepared_trainer(
    run: Run, out: Path, processes: Processes, callback: Callback, loss: Loss | None, build: Build
) -> Trainer:
    callback.on_message(_used(run, processes))
    for line in _rounded_rates(run):
        callback.on_message(line)
    if processes.is_main:
        prepared = prepare(run, out, callback.on_message)
    processes.barrier()
    if not processes.is_main:  # by now the tokenizers and the encoded corpora are there to be read
        prepared = prepare(run, out, callback.on_message)
    trainer = Trainer(run, out, prepared, processes, callback, loss=loss, build=build)
    callback.on_message(f"model: {trainer.parameters:,} parameters; writing to {out}")
    for line in trainer.lost_variations():
        callback.on_message(line)
    if trainer.total <= run.schedule.warmup:
        callback.on_message(
            f"the run ends within its warmup: it has {trainer.total:,} steps, and schedule.warmup is "
            f"{run.schedule.warmup:,}; a shorter warmup, or a longer run, learns more"
        )
    trainer.resume()
    return trainer


def _used(run: Run, processes: Processes) -> str:
    threads = torch.get_num_threads()
    return (
        f"torch {torch.__version__} on {cpu_name()}: "
        f"{processes.count} {'process' if processes.count == 1 else 'processes'} of {threads} "
        f"{'thread' if threads == 1 else 'threads'}, {_precision(run)}, memory by {allocator()}"
    )


def _precision(run: Run) -> str:
    precision = run.training.precision
    if precision == "int8" and kernels() is None:
        return "int8 without the package's kernels, which is slower than float32"
    return precision


def _rounded_rates(run: Run) -> list[str]:
    config = run.model_config_for(1000, 1000)
    lines = []
    for name in ("dropout", "attention_dropout", "activation_dropout"):
        rate = getattr(config, name)
        if applied_rate(rate) != rate:
            lines.append(f"{name} {rate} is applied as {round(rate * 256)}/256 = {applied_rate(rate):.4f}")
    return lines
