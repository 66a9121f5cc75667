"""`make bench-training`: writes benchmarks/results/training-DATE.md."""

import datetime
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.alternating import KEEP_MEMORY, Contestant, alternate, machine, ratios
from benchmarks.environments import python_of
from benchmarks.training.measure import SIZES, has_bfloat16, make_batches

ROUNDS = 3
NAMES = {
    "torch": "torch.nn.Transformer",
    "marian": "Hugging Face Marian",
    "joeynmt": "Joey NMT 2.3",
    "eole": "eole 0.6",
}


def main() -> None:
    """Run everyone at both sizes, or at one (`tiny` or `base` on the command line), and write the tables."""
    threads = len(os.sched_getaffinity(0))
    lines = [
        f"# Training, {datetime.date.today().isoformat()}",
        "",
        "`make bench-training` made this file. " + machine() + f"; {threads} threads.",
        "",
        "Whole training steps (forward, label-smoothed cross-entropy, backward, clipping, Adam) on the same batches of",
        "sentences as long as Multi30k's, post-norm, nothing dropped from attention weights and hidden layers, tied",
        "embeddings. Fresh processes in turns, each peer in an environment of its own. Target tokens a second without",
        "padding: medians of the rounds (slowest-fastest). Ratios say how many times as fast regard is, the median of",
        "the rounds' own: `float32`, as it computes by default, and as its peers do; `fast`, with",
        '`training.precision = "int8"` and `training.softmax_gradient = "sampled"`. regard tells the allocator to keep',
        "its memory, and Python's collector to leave alone what is older than the steps; `kept`: the peer is given the",
        f"same settings; `bfloat16`: and autocast too{'' if has_bfloat16() else ' (one round of one batch)'}.",
    ]
    with tempfile.TemporaryDirectory() as directory:
        for size_name, size in SIZES.items():
            if sys.argv[1:] and size_name not in sys.argv[1:]:
                continue
            batches = Path(directory) / f"{size_name}.npz"
            make_batches(size, batches)
            lines += _table(size_name, batches, threads)
    path = Path(__file__).parent.parent / "results" / f"training-{datetime.date.today().isoformat()}.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"), file=sys.stdout)


def _table(size_name: str, batches: Path, threads: int) -> list[str]:
    size = SIZES[size_name]
    root = str(Path(__file__).parents[2])

    def contestant(name: str, label: str, environment: dict[str, str]) -> Contestant:
        python = sys.executable if name == "regard" else python_of(name)
        arguments = [f"benchmarks.training.with_{name}", size_name, str(batches)]
        return Contestant(
            f"{size_name} {name} {label}", arguments, {"PYTHONPATH": f"{root}/src:{root}", **environment}, python
        )

    plain, fast = contestant("regard", "", {}), contestant("regard", "fast", {"BENCH_FAST": "1"})
    default = {peer: contestant(peer, "default", {}) for peer in NAMES}
    kept = {peer: contestant(peer, "kept", dict(KEEP_MEMORY)) for peer in NAMES}
    # Where a processor has no instructions for it, a step of the larger model takes minutes: one peer shows that, once.
    slow = size_name == "base" and not has_bfloat16()
    half = {
        peer: contestant(peer, "bfloat16", {**KEEP_MEMORY, "BENCH_BFLOAT16": "1"})
        for peer in ([*NAMES][:1] if slow else NAMES)
    }
    in_turns = [plain, fast, *default.values(), *kept.values()]
    if has_bfloat16():
        alternate([*in_turns, *half.values()], ROUNDS, threads)
    else:
        alternate(in_turns, ROUNDS, threads)
        alternate([*half.values()], 1, threads)
    lines = [
        "",
        f"## {size_name}: {size.layers}+{size.layers} layers, d_model {size.d_model}, d_ff {size.d_ff}, "
        f"vocabulary {size.vocab:,}, dropout {size.dropout}, {size.batch_tokens:,} tokens a batch",
        "",
        f"regard: {_speed(plain)} target tokens/s in float32, {_speed(fast)} fast",
        "",
        "| peer | tokens/s | float32 | fast | kept: tokens/s | float32 | fast | bfloat16: tokens/s | fast |",
        f"| {' | '.join(['---'] * 9)} |",
    ]
    for peer in NAMES:
        cells = [NAMES[peer]]
        for column in (default[peer], kept[peer]):
            cells.append(_speed(column))
            for ours in (plain, fast):
                cells.append(_ratio(ours, column))
        if peer in half:
            cells += [_speed(half[peer]), _ratio(fast, half[peer])]
        else:
            cells += ["", ""]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _ratio(ours: Contestant, peer: Contestant) -> str:
    """Return how many times as fast we are, by rounds; a peer that ran fewer rounds is compared by its median."""
    if len(peer.rounds) < len(ours.rounds):
        return f"{peer.median('seconds') / ours.median('seconds'):.2f}"
    middle, low, high = ratios(ours, peer, "seconds")
    return f"{middle:.2f} ({low:.2f}-{high:.2f})"


def _speed(contestant: Contestant) -> str:
    speeds = sorted(1000 / row["seconds"] for row in contestant.rounds)
    return f"{1000 / contestant.median('seconds'):,.0f} ({speeds[0]:,.0f}-{speeds[-1]:,.0f})"


if __name__ == "__main__":
    main()
