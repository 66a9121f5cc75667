"""One point, in a process of its own: `python -m benchmarks.long.point NAME LENGTH REPEATS` prints a JSON object."""

import json
import resource
import statistics
import sys
import time

import torch

from benchmarks.long.settings import HEADS, K


def main() -> None:
    """Time forward and backward, and say how much memory the process has used at most."""
    name, length, repeats = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.manual_seed(0)
    operator = _contestant(name, length)
    seconds = [_step(operator, length) for _ in range(repeats)]
    seconds = seconds[1:] or seconds  # the first one warms up
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": statistics.median(seconds), "memory": memory}))


def _contestant(name, length):  # type: ignore[no-untyped-def]
    if name.startswith("peer:"):
        from benchmarks.long.peers import PEERS

        return PEERS[name.removeprefix("peer:")](length)
    from benchmarks.long.ours import OURS

    return OURS[name](length)


def _step(operator, length: int) -> float:  # type: ignore[no-untyped-def]
    query, key, value = (torch.randn(1, HEADS, length, K, requires_grad=True) for _ in range(3))
    start = time.perf_counter()
    output = operator(query, key, value)
    spent = time.perf_counter() - start
    grad = torch.randn_like(output)
    start = time.perf_counter()
    output.backward(grad)
    return spent + time.perf_counter() - start


if __name__ == "__main__":
    main()
