"""From a run to a trained model in a directory."""

import json
import os
from pathlib import Path
from typing import Any

import torch

from regard.errors import ConfigError, LostProcessError, ModelError, StoppedError
from regard.files import read_json, replaced_file
from regard.memory import allocator
from regard.native import kernels
from regard.ops import applied_rate
from regard.training.loop import Trainer
from regard.training.losses import Loss
from regard.training.machine import cpu_name
from regard.training.model_card import write_card
from regard.training.preparation import prepare
from regard.training.processes import Processes
from regard.training.recipe import Run
from regard.training.reports import Listener, Silent
from regard.training.signals import stop_on_signals

RUN_FILE = "run.json"

# What may be another when a run is resumed: how long it goes, what is kept and shown, how it is computed.
_FREE = {
    "data": {"cache"},
    "schedule": {"cooldown"},
    "training": {"start_from", "steps", "epochs", "threads", "workers", "report_every", "sharded"},
    "checkpoints": {"every", "keep"},
    "validation": {"patience"},
}


def train(
    run: Run | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    loss: Loss | None = None,
    listener: Listener | None = None,
) -> Path:
    """Train the model of a run, or of a run file, in a directory; give the directory, which is then a model.

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

    What it finds in the directory it goes on from. `loss` takes the place of cross-entropy: a function of the model
    and a batch that gives the loss summed over the target tokens. A signal stops training with a `StoppedError`.
    """
    run = run if isinstance(run, Run) else Run.load(Path(run))
    listener = Silent() if listener is None else listener
    directory = Path(out)
    if run.training.threads is not None:
        torch.set_num_threads(run.training.threads)
    processes = Processes()
    listener = listener if processes.first else Silent()
    try:
        with stop_on_signals() as stop:
            trainer = _prepared_trainer(run, directory, processes, listener, loss)
            if not trainer.train(stop):
                raise StoppedError(stop.signal or 15, trainer.step)
            trainer.finish()
            if processes.first:
                write_card(directory, run)
                listener.tell(f"{directory}: trained, {trainer.step:,} steps")
            processes.wait()
    except RuntimeError as error:
        if processes.count == 1 or not processes.lost(error):
            raise
        raise LostProcessError(
            "another process of this run was lost; the same command goes on from the last checkpoint"
        ) from None
    finally:
        processes.leave()
    return directory


def _prepared_trainer(run: Run, out: Path, processes: Processes, listener: Listener, loss: Loss | None) -> Trainer:
    listener.tell(_used(run, processes))
    for line in _rounded_rates(run):
        listener.tell(line)
    if processes.first:
        _claim(out, run)
        prepared = prepare(run, out, listener.tell)
    processes.wait()
    if not processes.first:  # by now the tokenizers and the encoded corpora are there to be read
        prepared = prepare(run, out, listener.tell)
    trainer = Trainer(run, out, prepared, processes, listener, loss)
    trainer.resume()
    return trainer


def _claim(out: Path, run: Run) -> None:
    """Make the directory this run's, unless it is another's."""
    path = out / RUN_FILE
    if path.exists():
        before = read_json(path)
        if change := _difference(_fixed(before), _fixed(run.model_dump(mode="json"))):
            raise ConfigError(f"{out} was made by another run: {change}; choose another directory with --out")
    elif (out / "config.json").exists():
        raise ConfigError(f"{out} holds a model that no run made; choose another directory with --out")
    try:
        with replaced_file(path) as fresh:
            fresh.write_text(json.dumps(run.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ModelError(f"{out} cannot be written to: {error.strerror}") from None


def _fixed(content: dict[str, Any]) -> dict[str, Any]:
    """Leave out what may change: free fields, and where files are, for their content is compared by itself."""
    kept: dict[str, Any] = {}
    for section, fields in content.items():
        free = set(_FREE.get(section, ()))
        if section == "training" and content.get("schedule", {}).get("kind") in ("cosine", "linear"):
            free -= {"steps", "epochs"}  # their rates depend on where the run ends
        if section == "data":
            sides = {side: [_placeless(corpus) for corpus in fields.get(side, [])] for side in ("train", "valid")}
            fields = {**fields, **sides}
        if section == "tokenizer":
            fields = _placeless(fields)
        kept[section] = {key: value for key, value in fields.items() if key not in free}
    return kept


def _placeless(corpus: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in corpus.items() if key not in ("path", "source", "target")}


def _difference(before: Any, now: Any, path: str = "") -> str | None:
    """Name the first key whose value is another."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            if found := _difference(before.get(key), now.get(key), f"{path}.{key}" if path else key):
                return found
        return None
    return None if before == now else f"{path} was {before!r} there and is {now!r} here"


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
