"""When a kernel may compute, and with how many threads."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from regard.kernels.bindings import kernels

_threads: ContextVar[int | None] = ContextVar("threads", default=None)


def threads() -> int:
    """Return how many threads a kernel may use: as many as torch, or as torch had."""
    given = _threads.get()
    return torch.get_num_threads() if given is None else given


@contextmanager
def one_thread_for_torch() -> Iterator[None]:
    """Limit torch and kernels to one thread each in this thread, and in those that are started meanwhile.

    Those keep it: torch has one number for the process, and each thread reads it once, when it starts.
    """
    given = torch.get_num_threads()
    if given == 1:  # setting it takes longer than a small step
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(given)


@contextmanager
def threads_for_kernels() -> Iterator[None]:
    """Limit torch to one thread while kernels run: its idle threads would spin on the same cores."""
    before = _threads.set(threads())
    try:
        with one_thread_for_torch():
            yield
    finally:
        _threads.reset(before)


def readable(numbers: Tensor) -> bool:
    """Whether kernels can read these numbers where they are."""
    return numbers.dtype == torch.float32 and numbers.is_contiguous() and numbers.device.type == "cpu"


def can_compute(*tensors: Tensor) -> bool:
    """Whether there are kernels, and these tensors are floats in memory that they can read."""
    return not is_traced() and kernels() is not None and all(map(_in_memory, tensors))


def is_traced() -> bool:
    """Whether something traces or transforms what is computed: its tensors may have no memory to point at."""
    return bool(
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack()
        or forward_ad._current_level >= 0  # derivatives that go along with the values are torch's alone
    )


def _in_memory(x: Tensor) -> bool:
    return (
        type(x) in (torch.Tensor, torch.nn.Parameter)
        and x.layout == torch.strided
        and not x.is_nested
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        and not x.is_neg()
    )


def has_memory(x: Tensor) -> bool:
    """Whether a tensor has storage; batched functorch tensors have none."""
    try:
        return bool(x.data_ptr())
    except RuntimeError:
        return False
