"""How torch's idle threads wait for work."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from regard.spinning import WaitPolicy, adaptive_spinning

needs_statistics = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="the system does not say how long threads wait"
)


def run(code: str, **environment: str) -> str:
    chosen = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    env = {name: value for name, value in os.environ.items() if name not in chosen}
    found = subprocess.run(
        [sys.executable, "-c", code], env={**env, **environment}, capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def watchers() -> int:
    return sum(thread.name == "adaptive spinning" for thread in threading.enumerate())


def teams() -> int:
    return sum(thread.name == "OpenMP team" for thread in threading.enumerate())


@needs_statistics
def test_threads_sleep_while_they_wait_for_cores_and_spin_again_well_below_that() -> None:
    import torch  # noqa: F401  (without it there are no threads)

    policy = WaitPolicy()
    found = []
    for waited in (0.0, 0.15, 0.3, 0.15, 0.05, 0.15):
        policy.observe(waited)
        found.append(policy.sleeps)
    assert found == [False, False, True, True, False, False]
    assert teams() == 0, "teams have ended"
    policy.sleep()
    policy.spin()
    assert teams() == 0, "one that has just begun, too"


def test_without_torch_there_is_nothing_to_wait_for() -> None:
    code = """
import sys
from regard.spinning import WaitPolicy
policy = WaitPolicy()
policy.observe(1.0)
print(policy.sleeps, "torch" in sys.modules)
"""
    assert run(code) == "False False"


IDLE = """
import os, time
import torch
from regard.spinning import WaitPolicy

libraries = open("/proc/self/maps").read()
if "libgomp" not in libraries or torch.get_num_threads() < 2:
    print("no team")
    raise SystemExit
x = torch.zeros(1 << 18)

def seconds_of_cores():
    x.add_(1)
    began = time.process_time()
    for _ in range(50):
        x.add_(1)  # after which the other threads have nothing to do
        time.sleep(0.005)
    return time.process_time() - began

policy = WaitPolicy()
spinning = seconds_of_cores()
policy.sleep()
time.sleep(0.5)  # the new team sleeps, too
sleeping = seconds_of_cores()
policy.spin()
time.sleep(0.5)
again = seconds_of_cores()
print(spinning, sleeping, again)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="GNU's OpenMP is in torch's packages for Linux")
def test_idle_threads_use_no_core_while_they_sleep() -> None:
    found = run(IDLE)
    if found == "no team":
        pytest.skip("torch has no team of threads of GNU's OpenMP here")
    spinning, sleeping, again = map(float, found.split())
    assert sleeping < 0.5 * min(spinning, again), found


CONTENDED = """
import os, threading, time
cores = os.sched_getaffinity(0)
import torch
from regard.spinning import adaptive_spinning

torch.set_num_threads(2)
def teams():
    return sum(thread.name == "OpenMP team" for thread in threading.enumerate())
def wait_for(condition, meanwhile):
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        meanwhile()
    return condition()

with adaptive_spinning():
    watcher = next(thread.native_id for thread in threading.enumerate() if thread.name == "adaptive spinning")
    for task in map(int, os.listdir("/proc/self/task")):
        os.sched_setaffinity(task, cores if task == watcher else {min(cores)})
    other = os.fork()
    if other == 0:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            pass
        os._exit(0)
    # The other process and this one share a core.
    contended = wait_for(lambda: teams() > 0, lambda: torch.zeros(1 << 20).exp_())
    os.kill(other, 9)
    os.waitpid(other, 0)
    print(contended, wait_for(lambda: teams() == 0, lambda: time.sleep(0.01)))
print(threading.active_count())
"""


@needs_statistics
def test_threads_sleep_as_long_as_another_process_is_busy() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("all processes share one core")
    assert run(CONTENDED).split() == ["True", "True", "1"]


@needs_statistics
@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_what_the_user_chose_is_respected(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for other in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        monkeypatch.delenv(other, raising=False)
    with adaptive_spinning():
        assert watchers() == 1
        with adaptive_spinning():
            assert watchers() == 1, "one is enough"
        assert watchers() == 1
    assert watchers() == 0
    monkeypatch.setenv(name, "PASSIVE")
    with adaptive_spinning():
        assert watchers() == 0


def test_the_command_line_watches_and_changes_no_environment_variables() -> None:
    code = """
import os, sys, threading
before = dict(os.environ)
import regard, regard.cli, regard.spinning
assert threading.active_count() == 1, "importing changes nothing"
from contextlib import contextmanager
entered = []
@contextmanager
def watched(real=regard.cli.adaptive_spinning):
    with real():
        entered.extend(thread.name for thread in threading.enumerate())
        yield
regard.cli.adaptive_spinning = watched
sys.argv = ["regard", "--version"]
try:
    regard.cli.main()
except SystemExit as end:
    assert end.code == 0
assert os.environ == before
print(entered[1:], threading.active_count(), "torch" in sys.modules)
"""
    expected = "['adaptive spinning']" if Path("/proc/self/schedstat").exists() else "[]"
    assert run(code).splitlines()[-1] == f"{expected} 1 False"
