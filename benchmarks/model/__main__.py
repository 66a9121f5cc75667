"""`make bench-model`: writes benchmarks/results/model-DATE.md."""

import datetime
import os
import sys
from pathlib import Path

from benchmarks.alternating import KEEP_MEMORY, Contestant, alternate, machine, ratios

ROUNDS = 5


def main() -> None:
    """Run everyone and write the tables."""
    threads = len(os.sched_getaffinity(0))
    default = {
        name: Contestant(name, ["benchmarks.model.contestant", name], {}) for name in ("regard", "torch", "marian")
    }
    kept = {
        name: Contestant(f"{name}, memory kept", ["benchmarks.model.contestant", name], dict(KEEP_MEMORY))
        for name in ("regard", "regard-sampled", "regard-fast", "torch", "marian")
    }
    attention = Contestant("attention", ["benchmarks.model.contestant", "attention"], dict(KEEP_MEMORY))
    alternate([*default.values(), *kept.values()], ROUNDS, threads)
    alternate([attention], ROUNDS, threads)

    lines = [
        f"# A training step, {datetime.date.today().isoformat()}",
        "",
        "`make bench-model` made this file. " + machine() + f"; {threads} threads.",
        "",
        "Forward, loss and backward of a base-like model (6+6 layers, d_model 512, d_ff 2048, 8 heads, vocabulary",
        "10,000, dropout 0.1, label smoothing 0.1) on 16 × 64 tokens, float32; nobody drops from attention weights or",
        f"hidden layers. {ROUNDS} rounds of fresh processes in turns, each the median of 6 steps. `memory kept`: as in",
        "`regard train`, the allocator of glibc is told to keep its memory, and Python's collector to leave alone what",
        "is older than the steps. Ratios are medians over the rounds (smallest-largest).",
        "`regard` computes in float32 all that the others do; `regard-sampled` has `softmax_gradient = sampled`, which",
        "samples the small elements of the gradient of the logits; `regard-fast` also has `precision = int8`.",
        "",
        "| model | seconds a step | fastest-slowest round |",
        "| --- | --- | --- |",
    ]
    lines += [
        f"| {c.name} | {c.median('step'):.3f} | {c.spread('step')} |" for c in [*default.values(), *kept.values()]
    ]
    lines += ["", "| regard against | how many times as fast |", "| --- | --- |"]
    for label, ours, theirs in (
        ("{}, both with the default allocator", default["regard"], default),
        ("{}, both with memory kept", kept["regard"], kept),
        ("{} with the default allocator, regard with memory kept", kept["regard"], default),
        ("{}, and regard-sampled, both with memory kept", kept["regard-sampled"], kept),
        ("{} with the default allocator, regard-sampled with memory kept", kept["regard-sampled"], default),
        ("{}, and regard-fast, both with memory kept", kept["regard-fast"], kept),
        ("{} with the default allocator, regard-fast with memory kept", kept["regard-fast"], default),
    ):
        for name in ("torch", "marian"):
            middle, low, high = ratios(ours, theirs[name], "step")
            lines.append(f"| {label.format(name)} | {middle:.2f} ({low:.2f}-{high:.2f}) |")
    lines += [
        "",
        "## Fused attention",
        "",
        "`regard.attention` and `F.scaled_dot_product_attention`, in turns in one process, d_k = d_v = 64, float32;",
        "the ratio is the median over turns.",
        "",
        "| shape | regard, ms | torch, ms | regard / torch |",
        "| --- | --- | --- | --- |",
    ]
    for measure in attention.rounds[0]:
        if " ours " in measure:
            ours_ms, torch_ms = (attention.median(m) * 1e3 for m in (measure, measure.replace("ours", "theirs")))
            label, ratio = measure.replace(" ours", ","), attention.median(measure.replace("ours", "ratio"))
            lines.append(f"| {label} | {ours_ms:.2f} | {torch_ms:.2f} | {ratio:.3f} |")
    path = Path(__file__).parent.parent / "results" / f"model-{datetime.date.today().isoformat()}.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"), file=sys.stdout)


if __name__ == "__main__":
    main()
