"""What this machine can do for training and translating, measured."""

import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from regard import __version__
from regard.acceleration.kernel_attention import kernel_attention
from regard.acceleration.linear import int8_linear, sgemm_linear
from regard.acceleration.packed_linear import int8_is_fast, packed_weight
from regard.acceleration.sgemm import by_kernel
from regard.kernels.bindings import KernelStatus, kernel_status, kernels
from regard.memory import allocator
from regard.ops.dropout import dropout
from regard.training.comparison import Comparison, compare
from regard.training.environment import cpu_name

_COMPARISONS = 6
_TORCH = "torch's"
_REPORT = "This is unexpected: run it again on an idle machine, and report it if it persists"


@dataclass(frozen=True)
class Finding:
    """One line of the diagnosis."""

    subject: str
    text: str
    advice: str = ""
    """What to do about it, if anything."""


def diagnose(*, memory_kept: bool, seconds: float) -> Iterator[Finding]:
    """Yield findings; the measurements among them take at most about so many seconds together."""
    each = seconds / _COMPARISONS
    status = kernel_status()  # first: REGARD_KERNELS may ask for what there is not
    yield Finding("regard", f"{__version__} on Python {platform.python_version()}, torch {torch.__version__}")
    yield Finding(
        "processor", f"{cpu_name()}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"
    )
    libraries = ", ".join(f"{name} {version(name)}" for name in ("tokenizers", "safetensors", "sacrebleu"))
    yield Finding("libraries", libraries)
    yield _kernels(status)
    yield _memory(memory_kept)
    busy = _load()
    yield from busy
    # Where cores are shared, threads wait for one another, and that says nothing about the work.
    with _threads(1 if busy else torch.get_num_threads()):
        yield _dropout(each)
        yield _attention(each)
        yield _float32(each)
        yield _precision(each)
    with _threads(1):  # as each of the searches that share the cores
        yield _translating(each)
    backends = [
        name for name, there in (("gloo", dist.is_gloo_available()), ("nccl", dist.is_nccl_available())) if there
    ]
    yield Finding(
        "processes", f"torchrun --nproc-per-node N -m regard train …, over {' or '.join(backends) or 'nothing'}"
    )
    yield Finding("disk", f"{shutil.disk_usage('.').free / 1e9:,.1f} GB free here")


def _load() -> list[Finding]:
    """Return a warning if the machine does other work at the same time."""
    cores = os.cpu_count() or 1
    if not hasattr(os, "getloadavg") or (load := os.getloadavg()[0]) <= 0.5 * cores:
        return []
    text = f"{load:.1f} on {cores} cores: other programs are running. Measured on one thread."
    return [Finding("load", text, "Run it again when the machine is idle; what follows is less certain.")]


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _kernels(status: KernelStatus) -> Finding:
    if status.level is not None:
        return Finding("kernels", f"level {status.level}; REGARD_KERNELS=off|avx2|vnni chooses another.")
    return Finding("kernels", f"none, torch computes instead: {status.reason}.", status.advice)


def _memory(kept: bool) -> Finding:
    began = time.perf_counter()
    for _ in range(5):
        torch.empty(4096, 8192).fill_(1.0)
    milliseconds = 1000 * (time.perf_counter() - began) / 5
    text = f"allocated by {allocator()}; a 128 MiB tensor is filled in {milliseconds:.0f} ms."
    advice = "" if kept else "Freed memory is not kept: LD_PRELOAD with jemalloc or tcmalloc makes training faster."
    return Finding("memory", text, advice)


def _dropout(seconds: float) -> Finding:
    x = torch.randn(4096, 512)
    found = compare(lambda: dropout(x, 0.1), lambda: F.dropout(x, 0.1), seconds)
    return _finding("dropout", f"from random bytes, rates rounded to n/256: {found.text(_TORCH)}.", found)


def _attention(seconds: float) -> Finding:
    if kernels() is None:
        return Finding("attention", "by torch.")
    heads = torch.randn(200, 4, 20, 32, requires_grad=True)

    def trained(attention: Callable[[], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(attention().sum(), heads)

    found = compare(
        trained(lambda: kernel_attention(heads, heads, heads, False, None, scale=32**-0.5)),
        trained(lambda: F.scaled_dot_product_attention(heads, heads, heads)),
        seconds,
    )
    return _finding(
        "attention", f"kernel for short sequences: {found.text(_TORCH)} (20 tokens, with gradients).", found
    )


def _float32(seconds: float) -> Finding:
    x, weight = _factors()
    if not by_kernel(x, weight):
        return Finding("float32", "matmuls by torch's own library.")
    found = compare(_trained(sgemm_linear, x, weight), _trained(F.linear, x, weight), seconds)
    advice = ""
    if found.slower:
        advice = f'{_REPORT}. training.precision = "int8" or "bfloat16" does without these matmuls.'
    return Finding("float32", f"matmuls by the kernel of the package: {found.text(_TORCH)}.", advice)


def _precision(seconds: float) -> Finding:
    x, weight = _factors()
    half, half_weight = (tensor.detach().bfloat16().requires_grad_() for tensor in (x, weight))
    ways: dict[str, Callable[[], object]] = {
        "bfloat16": _trained(F.linear, half, half_weight),
        "int8": _trained(int8_linear, x, weight),
    }
    found = {name: compare(way, _trained(sgemm_linear, x, weight), seconds) for name, way in ways.items()}
    text = "; ".join(f"{name}: {comparison.text('float32')}" for name, comparison in found.items())
    best = max(found, key=lambda name: found[name].ratio)
    if found[best].low > 1.2:
        return Finding("precision", f"of matmuls: {text}.", f"Train with --set training.precision={best}")
    return Finding("precision", f"of matmuls: {text}.", "Train in float32, the default.")


def _translating(seconds: float) -> Finding:
    if not int8_is_fast():
        return Finding("translating", "in float32: this processor does not multiply int8 faster.")
    weight, rows = torch.randn(1024, 256), torch.randn(5, 256)
    packed = packed_weight(weight, None, "int8")
    found = compare(lambda: packed(rows), lambda: F.linear(rows, weight), seconds)
    by = "torch" if kernels() is None else "the kernels of the package"
    advice = "Translate with --precision float." if found.slower else ""
    return Finding("translating", f"in int8, by {by}: matmuls of 5 rows: {found.text('float32')}.", advice)


def _finding(subject: str, text: str, found: Comparison) -> Finding:
    return Finding(subject, text, f"{_REPORT}." if found.slower else "")


def _factors() -> tuple[Tensor, Tensor]:
    return torch.randn(1024, 512, requires_grad=True), torch.randn(1024, 512, requires_grad=True)


def _trained(linear: Callable[[Tensor, Tensor, None], Tensor], x: Tensor, weight: Tensor) -> Callable[[], object]:
    """Return a function that multiplies forward and backward."""

    def run() -> object:
        y = linear(x, weight, None)
        return torch.autograd.grad(y, (x, weight), y.detach())

    return run
