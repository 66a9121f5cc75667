"""Threads of a process: how they wait for work, and what becomes of them in a forked child.

Nothing happens on import: the command line calls `wait_passively` before it imports torch, and `regard.load` and
`regard.train` call `use_one_thread_in_forked_children`.
"""

import os

_SPIN = {"GOMP_SPINCOUNT": "2500"}
"""How often an idle thread of GNU's OpenMP, which torch's packages for Linux contain, checks for work before it sleeps.

By default it is 300,000 times, or some milliseconds. On two cores, a small training step took a third longer with 0 on
an idle machine, and nearly twice as long with 10,000 as with 1,000 beside a busy process (see `make bench-busy`). With
2,500 it takes some 5 % longer on an idle machine, and keeps about half of its speed beside a busy process.
"""

_CHOSEN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Variables by which the user controls how threads wait."""

_registered = False


def wait_passively() -> None:
    """Make torch's threads sleep soon after they run out of work. To be called before torch is imported.

    A thread that spins holds its core. Beside one busy process a training step then takes several times as long: the
    thread that is still computing shares its core with that process, while the spinning one keeps the other core.
    Environment variables that control how threads wait are respected.
    """
    if not any(name in os.environ for name in _CHOSEN):
        os.environ.update(_SPIN)


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
