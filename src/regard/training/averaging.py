"""The mean of several models: better than each of them, at no cost when it is used."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from regard.errors import InputError, ModelError
from regard.model.config import TransformerConfig
from regard.model.directory import read_model_directory


def average(paths: Sequence[Path]) -> tuple[TransformerConfig, dict[str, Tensor]]:
    """Give the mean weights of model directories of one shape, summed in float64."""
    if not paths:
        raise InputError("there are no models to average")
    config, first = read_model_directory(paths[0])
    sums = {name: tensor.double() for name, tensor in first.items()}
    for path in paths[1:]:
        other, tensors = read_model_directory(path)
        if other != config:
            raise ModelError(f"{path} is a model of another config than {paths[0]}; only like models have a mean")
        for name, total in sums.items():
            if name not in tensors or tensors[name].shape != total.shape:
                raise ModelError(f"{path} has no {name} of the shape that {paths[0]} has")
            total += tensors[name].double()
    return config, {name: (total / len(paths)).to(first[name].dtype) for name, total in sums.items()}


def finite(tensors: dict[str, Tensor]) -> bool:
    """Say whether all weights are numbers."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values())
