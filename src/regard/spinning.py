"""How torch's idle threads wait for work: they spin while cores are free, and sleep beside other processes."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

_CHOSEN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Variables by which the user controls how threads wait."""

_INTERVAL = 0.1  # seconds between two readings
_CONTENDED, _FREE = 0.2, 0.1
"""Seconds a second that threads wait for a core, all together: from how many on they sleep, and spin again.

An idle machine has 0.01. Beside one busy process the two threads of a training step wait for 0.7 if they spin, and for
0.6 if they sleep.
"""

_watched = False


@contextmanager
def adaptive_spinning() -> Iterator[None]:
    """Have torch's idle threads spin while cores are free, and sleep while other processes compete for them.

    An idle thread of GNU's OpenMP, which torch's packages for Linux contain, checks for work for some milliseconds
    before it sleeps. That is fastest on an idle machine. Beside a busy process it is slow: a thread that computes
    shares its core with that process, while the spinning one keeps the other core (see `make bench-busy`). A thread of
    this function reads how long this process waits for cores, and has idle threads sleep at once while that is long.

    Environment variables that control how threads wait are respected. Where the system does not say how long threads
    wait (Linux does), nothing changes.

    >>> with adaptive_spinning():
    ...     pass  # train, or translate
    """
    global _watched
    if _watched or any(name in os.environ for name in _CHOSEN) or _seconds_waited() is None:
        yield
        return
    _watched, end, waiting = True, Event(), WaitPolicy()
    watcher = Thread(target=_watch, args=(waiting, end), name="adaptive spinning", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        _watched = False
        end.set()
        watcher.join()


class WaitPolicy:
    """Whether torch's idle threads spin or sleep.

    GNU's OpenMP reads how long threads spin when it is loaded, but has them sleep almost at once while there are more
    of them than cores. Further teams of threads, which sleep themselves, bring their number above that of the cores.
    """

    def __init__(self) -> None:
        self._end_teams: Event | None = None
        self._teams: list[Thread] = []

    @property
    def sleeps(self) -> bool:
        """Whether idle threads sleep at once."""
        return self._end_teams is not None

    def observe(self, waited: float) -> None:
        """Take in for how many seconds a second threads waited for a core."""
        if self._end_teams is None and waited > _CONTENDED and "torch" in sys.modules:
            self.sleep()
        elif waited < _FREE:
            self.spin()

    def sleep(self) -> None:
        """Have idle threads sleep at once."""
        import torch

        end, others, cores = Event(), torch.get_num_threads() - 1, len(os.sched_getaffinity(0))
        self._teams = [
            Thread(target=_have_team, args=(end,), name="OpenMP team", daemon=True)
            for _ in range((cores - 1) // others if others else 0)
        ]
        self._end_teams = end
        for team in self._teams:
            team.start()

    def spin(self) -> None:
        """Let idle threads spin again."""
        if self._end_teams is not None:
            self._end_teams.set()
            self._end_teams = None
            for team in self._teams:
                team.join()  # Python's end would abort one that still computes in torch


def _have_team(end: Event) -> None:
    """Be a thread with an OpenMP team of its own, until the event; the team ends with its thread."""
    import torch

    torch.zeros(torch.get_num_threads() << 15, device="cpu").add_(1)  # enough for torch to divide it among all threads
    end.wait()


def _watch(waiting: WaitPolicy, end: Event) -> None:
    before = _seconds_waited()
    while not end.wait(_INTERVAL):
        now = _seconds_waited()
        if before is not None and now is not None:
            waiting.observe((now - before) / _INTERVAL)
        before = now
    waiting.spin()


def _seconds_waited() -> float | None:
    """Return how long the threads of this process were ready to compute and had no core; None where nobody knows."""
    try:
        tasks = [*Path("/proc/self/task").iterdir()]
    except OSError:
        return None
    found = [waited for task in tasks if (waited := _nanoseconds_waited(task)) is not None]
    return sum(found) / 1e9 if found else None


def _nanoseconds_waited(task: Path) -> int | None:
    try:
        return int((task / "schedstat").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):  # the thread has just ended, or the kernel keeps no such statistics
        return None
