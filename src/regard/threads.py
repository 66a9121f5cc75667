"""Threads of torch in a forked child. Nothing happens on import: `regard.load` and `regard.train` call this."""

import os

_registered = False


def use_one_thread_in_forked_children() -> None:
    """Make torch compute with one thread in processes that are forked from this one, from the first call on.

    A forked child has none of its parent's threads, and OpenMP would wait for them forever.
    """
    global _registered
    if not _registered and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_use_one_thread)
        _registered = True


def _use_one_thread() -> None:
    import torch

    torch.set_num_threads(1)
