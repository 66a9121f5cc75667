"""The device that a model trains or runs on."""

from typing import Literal, get_args

import torch

from regard.errors import ConfigError

DeviceName = Literal["auto", "cpu", "cuda", "mps"]


def resolve_device(name: str | torch.device = "auto") -> torch.device:
    """Return the device of a name: for "auto" a GPU if there is one, cuda before mps, else the CPU.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if isinstance(name, torch.device):
        return name
    kind, _, number = name.partition(":")
    if kind not in get_args(DeviceName) or (number and not number.isdigit()):
        raise ConfigError(f"device {name!r} is not known; it is one of {', '.join(get_args(DeviceName))}")
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if kind == "auto":
        kind = next(other for other in ("cuda", "mps", "cpu") if available[other])
    if not available[kind]:
        raise ConfigError(f"device {name!r} is not available: this torch, {torch.__version__}, finds none")
    return torch.device(f"{kind}:{number}" if number else kind)
