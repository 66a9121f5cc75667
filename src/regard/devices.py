"""The device that a model trains or runs on, and what differs from one device to another."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal, get_args

import torch
from torch import Tensor

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


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device, without waiting for the copy where its memory may be released before the copy ends.

    CUDA copies what is not in pinned memory to a buffer of its own first; mps may read memory that is reused already.
    """
    return x.to(device, non_blocking=device.type == "cuda")


def widest_float(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on a device that does not have it."""
    try:
        return torch.zeros((), dtype=torch.float64, device=device).dtype
    except TypeError:
        return torch.float32


def in_full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Compute in the precision of the tensors, whatever autocast chooses: sums over thousands of positions need it."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()
