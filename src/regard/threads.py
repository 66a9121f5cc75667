"""Threads of a process: how they wait for work, and what becomes of them in a forked child.

Nothing happens on import: the command line calls `wait_passively` before it imports torch, and `regard.load` and
`regard.train` call `use_one_thread_in_forked_children`.
"""

import os

_SPIN = {"GOMP_SPINCOUNT": "1000"}
"""How often an idle thread of GNU's OpenMP, which torch's packages for Linux contain, looks for work before it sleeps.

By default it is 300,000 times, or some milliseconds. Of 0 to 100,000, 1,000 is the fewest that cost nothing to speak of
on an idle machine; `make bench-busy` measures it.
"""

_CHOSEN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Variables by which someone has chosen already."""

_registered = False


def wait_passively() -> None:
    """Let torch's threads sleep soon after they have run out of work; before torch is imported.

    While they look for work they take a core from whoever has some. Beside one busy process that makes a step of
    training several times as slow: the thread that is waited for shares its core, and the one that waits does not give
    up its own. Environment variables that say how threads wait are respected.
    """
    if not any(name in os.environ for name in _CHOSEN):
        os.environ.update(_SPIN)


def use_one_thread_in_forked_children() -> None:
    """Let torch compute with one thread in processes that are forked from this one, from the first call on.

    A forked child has none of its parent's threads, and OpenMP would wait for them for ever.
    """
    global _registered
    if not _registered and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_use_one_thread)
        _registered = True


def _use_one_thread() -> None:
    import torch

    torch.set_num_threads(1)
