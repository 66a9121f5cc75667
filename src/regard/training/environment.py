"""What a run computes on."""

import platform
from pathlib import Path
from typing import Any

import torch


def cpu_name() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


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
