"""Checkpoint averaging."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from regard.data.tokenizer import SOURCE_TOKENIZER, TOKENIZER
from regard.data.truecasing import CAPITALS
from regard.decoding.settings import GENERATION
from regard.errors import InputError, ModelError
from regard.files import new_directory
from regard.model.directory import SNAPSHOTS, SavedModel, read_model_directory, write_model_files
from regard.tasks.directory import TASKS_FILE
from regard.training.callbacks import METRICS, is_validation, read_metrics, validation_value
from regard.training.checkpoints import step_directories, step_of


def average(paths: Sequence[Path]) -> SavedModel:
    """Return the mean weights of model directories of one shape, summed in float64."""
    if not paths:
        raise InputError("there are no models to average")
    config, first, modules = read_model_directory(paths[0])
    sums = {name: tensor.double() for name, tensor in first.items()}
    for path in paths[1:]:
        other, tensors, theirs = read_model_directory(path)
        if (other, theirs) != (config, modules):
            raise ModelError(f"{path} is a model of another config than {paths[0]}; only like models have a mean")
        for name, total in sums.items():
            if name not in tensors or tensors[name].shape != total.shape:
                raise ModelError(f"{path} has no {name} of the shape that {paths[0]} has")
            total += tensors[name].double()
    means = {name: (total / len(paths)).to(first[name].dtype) for name, total in sums.items()}
    return SavedModel(config, means, modules)


def chosen_snapshots(run: Path, count: int, values: Mapping[int, float] | None = None) -> list[Path]:
    """Return the last snapshots of a run in the order of their steps, or the best by the values that steps have."""
    found = {step_of(path): path for path in step_directories(run / SNAPSHOTS)}
    if not found:
        raise ModelError(f"{run / SNAPSHOTS} holds no snapshots; a run takes one at each validation")
    if count < 1 or count > len(found):
        raise InputError(f"{count} snapshots were asked for; {run / SNAPSHOTS} holds {len(found)}")
    steps = sorted(found)
    if values is not None:
        ranked = sorted(values, key=lambda step: (-values[step], step))[:count]
        if gone := [step for step in ranked if step not in found]:
            raise InputError(
                f"the snapshot of step {gone[0]} is no longer there; averaging.kind = 'best' keeps the best"
            )
        return [found[step] for step in sorted(ranked)]
    return [found[step] for step in steps[-count:]]


def validation_values(run: Path) -> dict[int, float]:
    """Return what each validation of a run found: the higher, the better."""
    return {line["step"]: validation_value(line) for line in read_metrics(run / METRICS) if is_validation(line)}


def write_average(models: Sequence[Path], output: Path, *, tokenizers_of: Path, half: bool = False) -> None:
    """Write the mean of models as a model directory, with what lies beside one of them: tokenizers, tasks and so on."""
    mean = average(models)
    if half:
        mean = mean._replace(tensors={name: tensor.half() for name, tensor in mean.tensors.items()})
    with new_directory(output) as fresh:
        write_model_files(fresh, mean)
        for name in (TOKENIZER, SOURCE_TOKENIZER, GENERATION, TASKS_FILE, CAPITALS):
            if (tokenizers_of / name).exists():
                shutil.copyfile(tokenizers_of / name, fresh / name)
