"""What a run computes on."""

import platform
from pathlib import Path
from typing import Any

import torch


def cpu_name() -> str:
    """Return the name of the processor, with its family and model: virtual machines may give all of them one name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    first = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in reversed(lines))}
    if "model name" not in first:
        return platform.machine()
    named = (("family", "cpu family"), ("model", "model"))
    numbers = ", ".join(f"{name} {first[key]}" for name, key in named if key in first)
    return f"{first['model name']} ({numbers})" if numbers else first["model name"]


def environment(*, precision: str, processes: int, sharded: bool, device: torch.device) -> dict[str, Any]:
    """Return all that bit-identical results depend on beside the run itself."""
    return {
        "torch": str(torch.__version__),
        "cpu": cpu_name(),
        "threads": torch.get_num_threads(),
        "precision": precision,
        "processes": processes,
        "sharded": sharded,
        **({} if device.type == "cpu" else {"device": _device_name(device)}),
    }


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the differences between two environments of a run."""
    return [
        f"{key} was {before.get(key)}, is {now.get(key)}"
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key)
    ]
