"""The model directory on disk: JSON and safetensors, nothing that could run."""

import json
import os
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.errors import ConfigError, ModelError, shown
from regard.files import check_is_file, check_names, read_json, replaced_files
from regard.model.config import TransformerConfig
from regard.model.undescribed import same_names

Origin = str | os.PathLike[str]

FORMAT = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
CHECKPOINTS, SNAPSHOTS = "checkpoints", "snapshots"
"""In the directory of a run: what it resumes from, and the models that it had at its validations."""
_LARGEST_CONFIG = 1 << 20
_LARGEST_HEADER, _MOST_TENSORS = 16 << 20, 100_000
"""Of a safetensors file; a model of 1,000 layers in each stack has half as many."""
_WEIGHT_TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


class SavedModel(NamedTuple):
    """What a model directory holds."""

    config: TransformerConfig
    tensors: dict[str, Tensor]
    modules: tuple[str, ...] = ()
    """The classes of modules that a config does not describe, by name: only `build` can make them again."""


Build = Callable[[TransformerConfig], nn.Module]
"""Makes the model of a configuration, where it has modules that the configuration does not describe."""


def check_model(model: object) -> None:
    """Raise a `ModelError` unless `build` returned a model whose parameters, which are saved, are all of its state."""
    if not isinstance(model, nn.Module):
        raise ModelError(f"build returned a {type(model).__name__}; it takes a config and returns the model")
    for name, module in model.named_modules():
        lost = [buffer for buffer in module._buffers if buffer not in module._non_persistent_buffers_set]
        if lost:
            place = f"{name}.{lost[0]}".removeprefix(".")
            raise ModelError(
                f"{place} is a buffer, and only parameters are saved: make it a parameter with requires_grad=False, "
                "or register it with persistent=False if it is a constant that build makes again"
            )
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            raise ModelError(
                f"{name or 'the model'} has a get_extra_state, and only parameters are saved: "
                "make that state a parameter with requires_grad=False"
            )
    for name, parameter in model.named_parameters():
        _check_type(name, parameter)


def write_model_directory(path: Path, model: SavedModel) -> None:
    """Write configuration and weights; other files that the directory holds stay."""
    if path.exists() and not path.is_dir():
        raise ModelError(f"{path} is a file; a model is saved as a directory")
    with replaced_files(path, last=CONFIG_FILE) as fresh:
        write_model_files(fresh, model)


def write_model_files(fresh: Path, model: SavedModel) -> None:
    """Write configuration and weights into a directory that is not yet in its place."""
    content: dict[str, Any] = {"format": FORMAT, "model": model.config.model_dump(mode="json")}
    if model.modules:
        content["modules"] = list(model.modules)
    save_file({name: tensor.contiguous().cpu() for name, tensor in model.tensors.items()}, fresh / WEIGHTS_FILE)
    (fresh / CONFIG_FILE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_model_directory(path: Path) -> SavedModel:
    """Read configuration and weights, each checked for being what this format says."""
    if not path.is_dir():
        raise ModelError(f"{path} is {'a file' if path.exists() else 'missing'}; a model is a directory")
    config, tensors = read_config(path / CONFIG_FILE), read_weights(path / WEIGHTS_FILE)
    modules = read_modules(path / CONFIG_FILE)
    if modules:  # whose parameters may have any names
        return SavedModel(config, tensors, modules)
    for stack, depth in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        layers = config.sharing.distinct(depth)
        found = len({name.split(".")[2] for name in tensors if name.startswith(f"{stack}.layers.")})
        if found != layers:  # found out before a thousand layers are built
            said = f"{stack}_layers {depth}" + ("" if layers == depth else f" ({layers} of them distinct)")
            raise ModelError(f"{path}: its configuration has {said}, and its weights have {found}")
    return SavedModel(config, tensors)


def read_modules(path: Path) -> tuple[str, ...]:
    """Read the names of the classes of modules that the configuration does not describe."""
    names = read_json(path, largest=_LARGEST_CONFIG).get("modules", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ModelError(f"{path}: modules is not a list of names")
    return tuple(names)


def check_build(path: Origin, modules: tuple[str, ...], build: Build | None) -> None:
    """Raise a `ModelError` if a saved model has modules that only a `build` function can make."""
    if modules and build is None:
        raise ModelError(
            f"{path} was saved with modules that its configuration does not describe: "
            f"{_first_names(modules, ())}; "
            "load it in Python with build=, the function that makes the model from its config"
        )


def check_modules(path: Origin, saved: tuple[str, ...], built: tuple[str, ...]) -> None:
    """Raise a `ModelError` if a build makes other modules than those of a saved model, where these are recorded."""
    if saved and not same_names(saved, built):
        before, now = _first_names(saved, built), _first_names(built, saved) or "those of its configuration"
        raise ModelError(f"{path} was saved with the modules {before}, but build makes {now}")


def _first_names(names: tuple[str, ...], others: tuple[str, ...]) -> str:
    """Return three names and how many more there are; first come those that are not among the others."""
    ordered = sorted(names, key=lambda name: name in others)
    return ", ".join(map(_name, ordered[:3])) + (f" and {len(ordered) - 3} more" if len(ordered) > 3 else "")


def _check_finished(path: Path) -> None:
    """Refuse the directory of a run that has not ended yet, with what there is to use instead."""
    if (path / CONFIG_FILE).exists() or not any((path / name).is_dir() for name in (SNAPSHOTS, CHECKPOINTS)):
        return
    hint = f"`regard train` with --out {path} goes on with it"
    if snapshots := sorted(
        (path / SNAPSHOTS).glob("step-[0-9]*"), key=lambda snapshot: (len(snapshot.name), snapshot.name)
    ):
        hint = (
            f"its newest snapshot is {snapshots[-1]}, and `regard average {path} --last 1 -o MODEL` makes a model of it"
        )
    raise ModelError(f"{path} is a run that has not ended: {CONFIG_FILE} is not there yet; {hint}")


def read_config(path: Path) -> TransformerConfig:
    """Read the description of a model."""
    _check_finished(path.parent)
    content = read_json(path, largest=_LARGEST_CONFIG)
    if "format" not in content:
        hint = ""
        if "model_type" in content:
            kind = _name(str(content["model_type"]))
            hint = f"; it looks like Hugging Face's for a {kind} model, which `regard convert` may read"
        raise ModelError(f'{path} has no "format" and is not regard\'s{hint}')
    if type(content["format"]) is not int or content["format"] != FORMAT:
        raise ModelError(
            f"{path} is of format {shown(content['format'])}; this version of regard reads format {FORMAT}"
        )
    model = content.get("model")
    if isinstance(model, dict):
        check_names(model, path)
    try:
        return TransformerConfig.model_validate(model)
    except ConfigError as error:
        raise ModelError(f"{path}: {error}") from None


def read_weights(path: Path, largest: int | None = None) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file, of at most `largest` bytes if that is given."""
    _check_header(path, largest)
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, RuntimeError, TypeError, ValueError) as error:  # by what a header promises
        reason = str(error).partition("\n")[0][:200]
        raise ModelError(f"{path} is truncated or not a safetensors file: {reason}") from None
    if not tensors:
        raise ModelError(f"{path} holds no tensors")
    return tensors


def _check_header(path: Path, largest: int | None) -> None:
    """Refuse a safetensors file that is too large, or whose header promises more than any model has."""
    check_is_file(path)
    try:
        if largest is not None and path.stat().st_size > largest:
            raise ModelError(f"{path} is larger than {largest / 2**20:,.0f} MB; such a file is not read")
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = file.read(min(size, _LARGEST_HEADER))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    if size > _LARGEST_HEADER:
        raise ModelError(f"{path} is truncated or not a safetensors file: its header would have {size:,} bytes")
    if header.count(b"{") > _MOST_TENSORS:
        raise ModelError(f"{path} holds more than {_MOST_TENSORS:,} tensors; that is more than is read")


def common_type(tensors: Mapping[str, Tensor], *, source: Origin) -> torch.dtype:
    """Return the floating-point type that holds all of these tensors."""
    for name, tensor in tensors.items():
        _check_type(f"{source}: {_name(name)}", tensor)
    return reduce(torch.promote_types, (tensor.dtype for tensor in tensors.values()))


def _check_type(name: str, tensor: Tensor) -> None:
    if tensor.dtype not in _WEIGHT_TYPES:
        raise ModelError(f"{name} is {tensor.dtype}; weights are float64, float32, float16 or bfloat16")


@torch.no_grad()
def load_tensors(model: nn.Module, tensors: Mapping[str, Tensor], *, source: Origin) -> None:
    """Copy tensors into the parameters of the same names: all of them, of the same shapes, and no others."""
    parameters = dict(model.named_parameters())
    if missing := sorted(parameters.keys() - tensors.keys()):
        raise ModelError(f"{source}: {_listed(missing)} missing from the weights")
    if unknown := sorted(tensors.keys() - parameters.keys()):
        raise ModelError(f"{source}: {_listed(unknown)} in the weights, but not in the model of its configuration")
    for name, parameter in parameters.items():
        if parameter.shape != tensors[name].shape:
            raise ModelError(
                f"{source}: {name} has shape {tuple(tensors[name].shape)} in the weights, "
                f"but {tuple(parameter.shape)} in the model of its configuration"
            )
        parameter.copy_(tensors[name])


def _listed(names: list[str]) -> str:
    if len(names) == 1:
        return f"{_name(names[0])} is"
    return f"{_name(names[0])} and {len(names) - 1} more are"


def _name(name: str) -> str:
    return name if name.isprintable() and len(name) <= 100 else shown(name)
