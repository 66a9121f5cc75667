"""One contestant of `make bench-model`: prints the median seconds of a training step, or of attention.

python -m benchmarks.model.contestant regard|regard-sampled|regard-fast|torch|marian
python -m benchmarks.model.contestant attention
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.alternating import settle
from benchmarks.training.measure import PAD, SIZES, SMOOTHING

SIZE = SIZES["base"]
BATCH, LENGTH = 16, 64


def timed(work: Callable[[], Any], repeats: int, warm_up: int = 3) -> float:
    """Return the median seconds of a call."""
    for _ in range(warm_up):
        work()
    settle()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def training_step(name: str) -> Callable[[], None]:
    """Return a function that does one forward, loss and backward of a base-like model."""
    torch.manual_seed(0)
    source, target, labels = (torch.randint(4, SIZE.vocab, (BATCH, LENGTH)) for _ in range(3))
    model, loss = MODELS[name]()
    model.train()

    def step() -> None:
        model.zero_grad(set_to_none=True)
        loss(source, target, labels).backward()

    return step


Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def _regard(
    *, softmax_gradient: Literal["exact", "sampled"] = "exact", precision: Literal["float32", "int8"] = "float32"
) -> tuple[nn.Module, Loss]:
    """Return the model and the loss of `regard train`, as these settings accelerate them."""
    import regard
    from regard.ops.rng import keyed_dropout
    from regard.training.examples import Batch
    from regard.training.losses import cross_entropy

    model = regard.Transformer(
        regard.TransformerConfig.preset("base", vocab_size=SIZE.vocab, d_ff=SIZE.d_ff, dropout=SIZE.dropout, pad_id=PAD)
    )
    regard.accelerate(model, precision=precision, softmax_gradient=softmax_gradient)
    summed = cross_entropy(SMOOTHING)

    def loss(source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        tokens = int((labels != PAD).sum())
        examples = torch.arange(len(source))
        with keyed_dropout(examples):
            return summed(model, Batch(source, target, labels, examples, tokens)) / tokens

    return model, loss


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.view(-1, SIZE.vocab), labels.view(-1), label_smoothing=SMOOTHING, ignore_index=PAD)


def _torch() -> tuple[nn.Module, Loss]:
    from benchmarks.training.with_torch import Translator

    model = Translator(SIZE)
    return model, lambda source, target, labels: _cross_entropy(model(source, target), labels)


def _marian() -> tuple[nn.Module, Loss]:
    from benchmarks.training.with_marian import marian

    model = marian(SIZE)

    def loss(source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        mask = (source != PAD).long()
        logits = model(input_ids=source, attention_mask=mask, decoder_input_ids=target, use_cache=False).logits
        return _cross_entropy(logits, labels)

    return model, loss


MODELS: dict[str, Callable[[], tuple[nn.Module, Loss]]] = {
    "regard": _regard,
    "regard-sampled": partial(_regard, softmax_gradient="sampled"),
    "regard-fast": partial(_regard, softmax_gradient="sampled", precision="int8"),
    "torch": _torch,
    "marian": _marian,
}


def attention_times() -> dict[str, float]:
    """Time ours and torch's fused attention in turns, forward alone and with backward, and compare turn by turn."""
    import regard

    times: dict[str, list[float]] = {}
    for length, causal in ((64, False), (512, False), (512, True), (2048, True)):
        rows = max(1, 1024 // length)
        query, key, value = (torch.randn(rows, SIZE.heads, length, 64, requires_grad=True) for _ in range(3))
        ours = lambda: regard.attention(query, key, value, causal=causal)  # noqa: B023, E731
        theirs = lambda: F.scaled_dot_product_attention(query, key, value, is_causal=causal)  # noqa: B023, E731
        label = f"{rows}×{SIZE.heads}×{length}{' causal' if causal else ''}"
        both = [("ours", ours), ("theirs", theirs)]
        for repeat in range(40 if length > 1000 else 100):
            for name, attend in both if repeat % 2 else both[::-1]:  # who comes first finds other caches
                started = time.perf_counter()
                with torch.no_grad():
                    attend()
                forward = time.perf_counter()
                attend().sum().backward()
                times.setdefault(f"{label} {name} forward", []).append(forward - started)
                times.setdefault(f"{label} {name} with backward", []).append(time.perf_counter() - forward)
    for measure in [name for name in times if " ours " in name]:
        turns = zip(times[measure], times[measure.replace("ours", "theirs")], strict=True)
        times[measure.replace("ours", "ratio")] = [mine / other for mine, other in turns]
    return {name: statistics.median(values[3:]) for name, values in times.items()}


def main() -> None:
    """Measure what the arguments name and print it as JSON."""
    torch.set_num_threads(int(sys.argv[2]) if len(sys.argv) > 2 else torch.get_num_threads())
    if sys.argv[1] == "attention":
        print(json.dumps(attention_times()))
    else:
        print(json.dumps({"step": timed(training_step(sys.argv[1]), repeats=6)}))


if __name__ == "__main__":
    main()
