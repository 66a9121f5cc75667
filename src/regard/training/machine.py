"""What a run computes on, and the settings of glibc's allocator that make it quicker."""

import ctypes
import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch

# glibc gives large blocks back to the system and takes them again at each tensor: every page is faulted in anew.
_MALLOPT = {"M_TRIM_THRESHOLD": (-1, 2**31 - 1), "M_TOP_PAD": (-2, 2**28), "M_MMAP_MAX": (-4, 0)}
_kept = False


def keep_memory() -> bool:
    """Tell glibc to keep freed memory for the next tensors; say whether it will. Other allocators are left alone."""
    global _kept
    if not sys.platform.startswith("linux") or platform.libc_ver()[0] != "glibc":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    taken = [mallopt(ctypes.c_int(key), ctypes.c_int(value)) == 1 for key, value in _MALLOPT.values()]
    _kept = all(taken)
    return _kept


def allocator() -> str:
    """Name what large tensors are allocated by."""
    if _kept or os.environ.get("MALLOC_MMAP_MAX_") == "0":
        return "glibc, keeping freed memory"
    preloaded = os.environ.get("LD_PRELOAD", "")
    for name in ("jemalloc", "tcmalloc", "mimalloc"):
        if name in preloaded:
            return name
    return "as the system has it"


def cpu_name() -> str:
    """Name the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def environment(*, precision: str, processes: int, sharded: bool) -> dict[str, Any]:
    """Name all that bit-identical results depend on beside the run itself."""
    return {
        "torch": str(torch.__version__),
        "cpu": cpu_name(),
        "threads": torch.get_num_threads(),
        "precision": precision,
        "processes": processes,
        "sharded": sharded,
    }


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Say in what a run goes on otherwise than it began."""
    return [
        f"{key} was {before.get(key)}, is {now.get(key)}"
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key)
    ]
