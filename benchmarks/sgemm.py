"""`python -m benchmarks.sgemm`: writes benchmarks/results/sgemm-DATE.md.

The float32 products of a linear layer, forward and both gradients, by three libraries: the package's kernel, MKL and
oneDNN, the last two as they are inside torch. They take turns in one process.
"""

import datetime
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from regard.memory import keep_memory

keep_memory()  # as `regard train` does, before torch allocates anything

# isort: split
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks.alternating import machine  # noqa: E402
from regard.acceleration.sgemm import sgemm, sgemm_into  # noqa: E402

SHAPES = [(1024, 512, 512), (1024, 512, 2048), (1024, 2048, 512), (4096, 128, 128), (4096, 128, 256), (4096, 256, 128)]
"""Rows, inputs and outputs: of base-like models and of Transformer-Tiny."""
ROUNDS, SECONDS = 15, 0.1


def onednn(x: Tensor, weight: Tensor) -> Tensor:
    """Return xWᵀ by oneDNN."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
    return product


def products(R: int, D: int, X: int) -> dict[str, dict[str, Callable[[], object]]]:
    """Return each product of a layer by each library."""
    x, weight, grad, total = torch.randn(R, D), torch.randn(X, D), torch.randn(R, X), torch.zeros(X, D)
    return {
        "forward": {
            "regard": lambda: sgemm(x, weight),
            "MKL": lambda: F.linear(x, weight),
            "oneDNN": lambda: onednn(x, weight),
        },
        "gradient of the input": {
            "regard": lambda: sgemm(grad, weight.T),
            "MKL": lambda: grad @ weight,
            "oneDNN": lambda: onednn(grad, weight.T),
        },
        "gradient of the weight": {
            "regard": lambda: sgemm(grad.T, x.T),
            "MKL": lambda: grad.T @ x,
            "oneDNN": lambda: onednn(grad.T, x.T),
        },
        "the same, added to a sum": {
            "regard": lambda: sgemm_into(grad.T, x.T, total, add=True),
            "MKL": lambda: total.addmm_(grad.T, x),
            "oneDNN": lambda: total.add_(onednn(grad.T, x.T)),
        },
    }


def speed(work: Callable[[], object], operations: float) -> float:
    """Return GMAC/s."""
    began, count = time.perf_counter(), 0
    while count == 0 or time.perf_counter() - began < SECONDS:
        work()
        count += 1
    return count * operations / (time.perf_counter() - began) / 1e9


@torch.no_grad()
def main() -> None:
    """Measure, and write the page."""
    today, threads = datetime.date.today().isoformat(), len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    lines = [
        f"# Float32 products of a linear layer, {today}",
        "",
        f"`python -m benchmarks.sgemm` made this file. {machine()}; {threads} threads.",
        "",
        "GMAC/s, medians of rounds in which the three take turns in one process, and how many times as fast as",
        "oneDNN the package's kernel is: the median of the rounds' own ratios, lowest and highest.",
        "",
        "| rows × inputs → outputs | product | regard | MKL | oneDNN | regard to oneDNN |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    for R, D, X in SHAPES:
        for name, works in products(R, D, X).items():
            rounds: list[dict[str, float]] = []
            for number in range(ROUNDS + 1):
                order = list(works)
                turned = order[number % 3 :] + order[: number % 3]
                found = {library: speed(works[library], R * D * X) for library in turned}
                if number:  # the first warms up
                    rounds.append(found)
            columns = [[row[library] for row in rounds] for library in works]
            medians = " | ".join(f"{statistics.median(column):.0f}" for column in columns)
            ratios = [row["regard"] / row["oneDNN"] for row in rounds]
            ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
            lines.append(f"| {R} × {D} → {X} | {name} | {medians} | {ratio} |")
            print(lines[-1], flush=True)
    path = Path(__file__).parent / "results" / f"sgemm-{today}.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
