"""What this machine can do, measured in a few seconds."""

import platform
import shutil
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from regard import __version__
from regard.memory import allocator
from regard.native import kernels
from regard.ops import attention, dropout
from regard.ops.float_product import by_kernel
from regard.ops.linear import linear, products_in_bytes
from regard.pipeline.linear import bytes_are_fast, packed_weight
from regard.training.machine import cpu_name


def checkup(*, memory_kept: bool) -> Iterator[tuple[str, str]]:
    """Give findings, each a name and a sentence."""
    yield "regard", f"{__version__} on Python {platform.python_version()}, torch {torch.__version__}"
    yield "processor", f"{cpu_name()}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"
    yield "libraries", ", ".join(f"{name} {version(name)}" for name in ("tokenizers", "safetensors", "sacrebleu"))
    yield "memory", _memory(memory_kept)
    yield "dropout", _dropout()
    yield "attention", _attention()
    yield "products", _products()
    yield "precision", _precision()
    yield "translating", _translating()
    backends = [
        name for name, there in (("gloo", dist.is_gloo_available()), ("nccl", dist.is_nccl_available())) if there
    ]
    yield "processes", f"torchrun --nproc-per-node N -m regard train …, over {' or '.join(backends) or 'nothing'}"
    yield "disk", f"{shutil.disk_usage('.').free / 1e9:,.1f} GB free here"


def _memory(kept: bool) -> str:
    size = (4096, 8192)

    def touch() -> None:
        torch.empty(size).fill_(1.0)

    state = f"`regard train` computes with memory by {allocator()}"
    return f"{state}; a fresh 128 MiB tensor takes {1000 * _seconds(touch):.0f} ms" + ("" if kept else ", each time")


def _dropout() -> str:
    x = torch.randn(4096, 512)
    ours, theirs = _seconds(lambda: dropout(x, 0.1)), _seconds(lambda: F.dropout(x, 0.1))
    return f"from bytes: {theirs / ours:.1f} times as fast as torch's own; rates are rounded to n/256"


def _attention() -> str:
    if kernels() is None:
        return "by torch's kernels: the package's own were not built"
    heads = torch.randn(200, 4, 20, 32, requires_grad=True)

    def trained(function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> float:
        return _seconds(lambda: torch.autograd.grad(function(heads, heads, heads).sum(), heads))

    ratio = trained(F.scaled_dot_product_attention) / trained(attention)
    return (
        f"by the package's own kernels for sentences: 20 words, with gradients, {ratio:.1f} times as fast as by torch's"
    )


def _products() -> str:
    x, weight = _factors()
    if not by_kernel(x, weight):
        return "in floats by the library that torch has"
    ratio = _seconds(lambda: _back(F.linear(x, weight), x, weight)) / _seconds(lambda: _forward_and_back(x, weight))
    return f"in floats by the package's own kernel: {ratio:.2f} times as fast as by the library that torch has"


def _precision() -> str:
    x, weight = _factors()
    half, half_weight = (tensor.detach().bfloat16().requires_grad_() for tensor in (x, weight))
    plain = _seconds(lambda: _forward_and_back(x, weight))
    gains = {
        "bfloat16": plain / _seconds(lambda: _forward_and_back(half, half_weight)),
        "int8": plain / _seconds(lambda: _forward_and_back(x, weight, in_bytes=True)),
    }
    best = max(gains, key=lambda name: gains[name])
    advice = f'training.precision = "{best}" pays' if gains[best] > 1.2 else "float32 is the better choice"
    told = " and ".join(f"in {name} {gain:.2f} times" for name, gain in gains.items())
    return f"matrix products are {told} as fast as in float32: {advice}"


def _factors() -> tuple[Tensor, Tensor]:
    return torch.randn(2048, 512, requires_grad=True), torch.randn(2048, 512, requires_grad=True)


def _forward_and_back(x: Tensor, weight: Tensor, *, in_bytes: bool = False) -> None:
    with products_in_bytes(in_bytes):
        y = linear(x, weight)
    _back(y, x, weight)


def _back(y: Tensor, x: Tensor, weight: Tensor) -> None:
    torch.autograd.grad(y, (x, weight), y.detach())


def _translating() -> str:
    if not bytes_are_fast():
        return "in floats: this processor does not multiply bytes faster"
    by = "torch's kernels: the package's own were not built" if kernels() is None else "the package's own kernels"
    weight, rows = torch.randn(1024, 256), torch.randn(5, 256)
    linear = packed_weight(weight, None, "int8")
    ratio = _seconds(lambda: F.linear(rows, weight)) / _seconds(lambda: linear(rows))
    return f"in bytes, by {by}; a product of 5 rows is {ratio:.1f} times as fast as in floats"


def _seconds(work: Callable[[], object], repeats: int = 7) -> float:
    """The median time of some work, after one call to warm up."""
    work()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return sorted(times)[repeats // 2]
