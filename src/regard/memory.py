"""Allocator and garbage-collector settings for training. Importing the library changes none of them."""

import ctypes
import gc
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# glibc gives large blocks back to the system and takes them again at each tensor: every page is faulted in anew.
_MALLOPT = {"M_TRIM_THRESHOLD": (-1, 2**31 - 1), "M_TOP_PAD": (-2, 2**28), "M_MMAP_MAX": (-4, 0)}
_kept = False


def keep_memory() -> bool:
    """Have glibc keep freed memory for the next tensors; return whether it will. Other allocators are left alone."""
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


def release_kept_memory() -> None:
    """Have glibc return the memory that it keeps; batches of other sizes leave more and more of it unused."""
    if _kept:
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


def allocator() -> str:
    """Return the name of the allocator of large tensors."""
    if _kept or os.environ.get("MALLOC_MMAP_MAX_") == "0":
        return "glibc, keeping freed memory"
    preloaded = os.environ.get("LD_PRELOAD", "")
    for name in ("jemalloc", "tcmalloc", "mimalloc"):
        if name in preloaded:
            return name
    return "the system's allocator"


@contextmanager
def older_objects_left_alone() -> Iterator[None]:
    """Freeze existing objects (`gc.freeze`) in this block, so that garbage collections skip them.

    Scanning the objects of loaded libraries takes a few percent of a training step. Frozen objects that become garbage
    are collected after the block. If objects are already frozen, nothing changes.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
