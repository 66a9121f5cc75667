"""Kernels in C++, built when the package is installed where there is a compiler. Nothing but speed depends on them."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path

import torch
from torch.autograd import forward_ad

from regard.errors import RegardError

LANES = 8
"""How many floats kernels compute at once: rows of so many, or of a multiple, have nothing left over."""

LIBRARY = Path(__file__).with_name("kernels.so")

_SIZE, _POINTER, _INT = ctypes.c_int64, ctypes.c_void_p, ctypes.c_int
_VERSION = 17


def _checked(status: int) -> None:
    """Raise what a kernel could not: it returns 0 if all went well."""
    if status:
        raise RegardError("there is not enough memory to compute so much at once")


_SIGNATURES = {
    "regard_version": (_INT, []),
    "regard_level": (_INT, []),
    "regard_packed_size": (_SIZE, [_SIZE, _SIZE]),
    "regard_pack": (None, [_POINTER, _SIZE, _SIZE, _POINTER, _POINTER]),
    "regard_choose": (None, [_POINTER, _POINTER, _SIZE, _POINTER, _POINTER, _POINTER, _POINTER]),
    "regard_chosen": (_checked, [_POINTER, _POINTER, _POINTER, _SIZE, _SIZE, _SIZE, _INT, _POINTER]),
    "regard_byte_product": (_checked, [_POINTER, _SIZE]),
    "regard_multiplies_floats": (_INT, []),
    "regard_float_product": (_checked, [_POINTER, _SIZE]),
    "regard_linear": (_checked, [_POINTER, _POINTER, _SIZE, _INT, _POINTER]),
    "regard_embed": (None, [_POINTER, _POINTER, _POINTER, _POINTER, _SIZE, _SIZE, ctypes.c_float, _POINTER]),
    "regard_encode": (_checked, [_POINTER, _POINTER, _POINTER, _SIZE, _SIZE]),
    "regard_step": (_checked, [_POINTER, _POINTER, _SIZE, _SIZE, _SIZE, _POINTER]),
    "regard_attention": (_checked, [_POINTER, _SIZE]),
    "regard_attention_backward": (_checked, [_POINTER, _POINTER, _SIZE]),
    "regard_drop": (_checked, [_POINTER, _POINTER, _SIZE, _SIZE, _POINTER]),
    "regard_join": (_checked, [_POINTER, _SIZE, _POINTER]),
    "regard_join_backward": (_checked, [_POINTER, _POINTER, _SIZE]),
    "regard_drawn_loss": (_checked, [_POINTER, _SIZE]),
    "regard_surprise": (_checked, [_POINTER, _POINTER, _SIZE, _SIZE, ctypes.c_float, _SIZE, _POINTER]),
    "regard_cut": (_checked, [_POINTER, _POINTER, _SIZE, _SIZE, _POINTER, _POINTER]),
    "regard_sizes": (None, [_POINTER]),
    "regard_log_softmax": (_checked, [_POINTER, _SIZE, _SIZE, _SIZE]),
    "regard_best": (_checked, [_POINTER, _POINTER, _SIZE, _SIZE, _SIZE, _SIZE, _SIZE, _POINTER, _POINTER]),
}

_threads: ContextVar[int | None] = ContextVar("threads", default=None)


def threads() -> int:
    """Say how many threads a kernel may use: as many as torch, or as torch had."""
    given = _threads.get()
    return torch.get_num_threads() if given is None else given


@contextmanager
def one_thread_for_torch() -> Iterator[None]:
    """Let torch and kernels compute with one thread each in this thread, and in those that are started meanwhile.

    Those keep it: torch has one number for the process, and each thread looks at it once, when it starts.
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
    """Leave all threads to kernels: torch's turn round and round while they wait for work, on the same cores."""
    before = _threads.set(threads())
    try:
        with one_thread_for_torch():
            yield
    finally:
        _threads.reset(before)


def readable(numbers: torch.Tensor) -> bool:
    """Say whether kernels can read these numbers where they are."""
    return numbers.dtype == torch.float32 and numbers.is_contiguous() and numbers.device.type == "cpu"


def can_compute(*tensors: torch.Tensor) -> bool:
    """Say whether there are kernels, and these tensors are floats in memory that they can read."""
    return not is_traced() and kernels() is not None and all(map(_in_memory, tensors))


def is_traced() -> bool:
    """Say whether something traces or transforms what is computed: its tensors may have no memory to point at."""
    return bool(
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack()
        or forward_ad._current_level >= 0  # derivatives that go along with the values are torch's alone
    )


def _in_memory(x: torch.Tensor) -> bool:
    return (
        type(x) in (torch.Tensor, torch.nn.Parameter)
        and x.layout == torch.strided
        and not x.is_nested
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        and not x.is_neg()
    )


def has_memory(x: torch.Tensor) -> bool:
    """Say whether there is anything where a tensor says that it is; there is not for many directions in one."""
    try:
        return bool(x.data_ptr())
    except RuntimeError:
        return False


def library() -> ctypes.CDLL:
    """Give the kernels, where `can_compute` has said that there are any."""
    found = kernels()
    assert found is not None, "`can_compute` says whether there are kernels"
    return found


class LinearPointers(ctypes.Structure):
    """Where a packed weight matrix is, X × D: its bytes, scales, sums and bias."""

    _fields_ = (
        *((name, _POINTER) for name in ("packed", "scales", "sums", "bias")),
        *((name, _SIZE) for name in ("X", "D")),
    )


@cache
def kernels() -> ctypes.CDLL | None:
    """Give the kernels, or nothing where they were not built or this processor cannot run them."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    # A library that an older version of the package left here takes other arguments.
    return library if library.regard_version() == _VERSION and library.regard_level() > 0 else None
