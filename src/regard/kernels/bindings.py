"""Kernels in C++, built when the package is installed where there is a compiler. Nothing but speed depends on them.

Every struct and every function that Python and C++ share is declared here, once. When the library is loaded, the sizes
and offsets of the structs are compared with its own: where they differ, there are no kernels. `kernel_status` says why.

REGARD_KERNELS chooses the instructions: "off", "avx2" or "vnni" (AVX-512 with VNNI); unset, the best there are.
"""

import ctypes
import os
import platform
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from torch import Tensor

from regard.errors import ConfigError, InputError, KernelError, OutOfMemoryError

_BUILD = "With a C++ compiler (g++ or clang++), installing regard again builds them."
LANES = 8
"""Floats that kernels compute at once: rows of a multiple of these have no remainder."""

LIBRARY = Path(os.environ.get("REGARD_KERNEL_LIBRARY") or Path(__file__).with_name("kernels.so"))
"""Where the kernels are. The variable is for tests of a library that was built otherwise."""

_VERSION = 20
_LEVELS = {"avx2": 1, "vnni": 2}
_INSTRUCTIONS = {"avx2": "AVX2 and FMA", "vnni": "AVX-512 VNNI"}

_int, _int32, _int64, _float, _double = ctypes.c_int, ctypes.c_int32, ctypes.c_int64, ctypes.c_float, ctypes.c_double
_pointer = ctypes.c_void_p


def _fields(kind: Any, names: str) -> Iterator[tuple[str, Any]]:
    return ((name, kind) for name in names.split())


# The structs of csrc/structs.hpp, where the fields are documented.


class MatrixView(ctypes.Structure):
    """A matrix of floats as it lies in memory; one of its strides is 1."""

    _fields_ = (("data", _pointer), *_fields(_int64, "row_stride column_stride"))

    @classmethod
    def of(cls, x_RD: Tensor) -> Self:
        """Describe a tensor."""
        return cls(x_RD.data_ptr(), *x_RD.stride())


class LinearPointers(ctypes.Structure):
    """A packed int8 weight matrix, X × D."""

    _fields_ = (*_fields(_pointer, "packed scales sums bias"), *_fields(_int64, "X D"))


class Norm(ctypes.Structure):
    """LayerNorm or RMSNorm."""

    _fields_ = (*_fields(_pointer, "weight bias"), ("eps", _float), ("centered", _int32))


class Heads(ctypes.Structure):
    """The sizes of multi-head attention, and how positions vary it."""

    _fields_ = (
        *_fields(_int64, "count key_value_count d_k d_v"),
        ("scale", _float),
        ("windowed", _int32),
        *_fields(_int64, "window sinks"),
        *_fields(_pointer, "rotations bias"),
        ("length", _int64),
    )


class Layer(ctypes.Structure):
    """A layer of an encoder or a decoder."""

    _fields_ = (
        *_fields(Heads, "heads source_heads"),
        *_fields(Norm, "self_attention_norm cross_attention_norm feed_forward_norm"),
        *_fields(LinearPointers, "query_key_value output source_query source_output expand contract"),
        *_fields(_int32, "pre_norm cross_attention activation gated"),
    )


class Stack(ctypes.Structure):
    """The layers of an encoder or a decoder."""

    _fields_ = (
        ("layers", ctypes.POINTER(Layer)),
        *_fields(_int64, "count D"),
        ("final_norm", ctypes.POINTER(Norm)),
    )


class DecoderState(ctypes.Structure):
    """What is being decoded: the keys and values of the past, and of the sources."""

    _fields_ = (
        ("past", ctypes.POINTER(_pointer)),
        *_fields(_pointer, "ancestors positions"),
        *_fields(_int64, "rows capacity"),
        ("source", ctypes.POINTER(_pointer)),
        ("source_lengths", _pointer),
        ("source_capacity", _int64),
    )


class DropoutStream(ctypes.Structure):
    """Where the random bits of dropout start, and what they drop."""

    _fields_ = (("starts", _pointer), ("elements", _int64), ("threshold", _int32), ("scale", _float))


class AddNorm(ctypes.Structure):
    """LayerNorm(x + Dropout(y))."""

    _fields_ = (
        *_fields(_int64, "B T D"),
        ("dropout", DropoutStream),
        *_fields(_pointer, "x y sums moments gamma beta"),
        ("eps", _float),
    )


class AddNormGradients(ctypes.Structure):
    """The gradients of `AddNorm`."""

    _fields_ = tuple(_fields(_pointer, "output x y gamma beta"))


class HeadsView(ctypes.Structure):
    """The rows of each head of a batch, as they lie in memory."""

    _fields_ = (("data", _pointer), *_fields(_int64, "batch_stride head_stride row_stride"))

    @classmethod
    def of(cls, x_BHTX: Tensor) -> Self:
        """Describe a tensor."""
        return cls(x_BHTX.data_ptr(), *x_BHTX.stride()[:3])


class Attention(ctypes.Structure):
    """Attention over short sequences, and over long ones with a window or a bias by distance."""

    _fields_ = (
        *_fields(_int64, "B H G T S K V"),
        ("scale", _float),
        ("causal", _int32),
        *_fields(_pointer, "allowed query_cu_seqlens key_cu_seqlens"),
        ("window", _int64),
        ("bias", _pointer),
        ("bias_stride", _int64),
        *_fields(HeadsView, "query key value output"),
        ("softmax_stats", _pointer),
    )


class AttentionGradients(ctypes.Structure):
    """The gradients of `Attention`."""

    _fields_ = (*_fields(HeadsView, "output query key value"), ("bias", _pointer))


class Int8Matmul(ctypes.Structure):
    """xWᵀ + b with x and W rounded to int8."""

    _fields_ = (
        *_fields(_int64, "R D X"),
        *_fields(MatrixView, "x weight"),
        *_fields(_pointer, "bias y"),
        *_fields(_int32, "stochastic_rows stochastic_weights"),
    )


class Sgemm(ctypes.Structure):
    """xWᵀ + b in float32."""

    _fields_ = (
        *_fields(_int64, "R D X"),
        *_fields(MatrixView, "x weight"),
        *_fields(_pointer, "bias y row_sums"),
        *_fields(_int32, "add"),
    )


class SampledLoss(ctypes.Structure):
    """The sampled-gradient loss of one pass or two."""

    _fields_ = (
        *_fields(_int64, "P R W D"),
        *_fields(_pointer, "logits labels starts states weight bias"),
        *_fields(_float, "smoothing small alpha"),
        *_fields(_pointer, "losses state_gradient weight_gradient bias_gradient"),
    )


class SubwordDropout(ctypes.Structure):
    """The merges of a BPE tokenizer, and the probability of leaving one out."""

    _fields_ = (
        ("M", _int64),
        *_fields(_pointer, "pairs ranks merged letters letter_starts kinds"),
        *_fields(_double, "log_dropped log_kept"),
    )


STRUCTS: tuple[type[ctypes.Structure], ...] = (
    *(MatrixView, LinearPointers, Norm, Heads, Layer, Stack, DecoderState),
    *(DropoutStream, AddNorm, AddNormGradients, HeadsView, Attention, AttentionGradients),
    *(Int8Matmul, Sgemm, SampledLoss, SubwordDropout),
)


def _ref(struct: type[ctypes.Structure]) -> Any:
    return ctypes.POINTER(struct)


_VALUES: dict[str, tuple[Any, list[Any]]] = {
    "regard_version": (_int, []),
    "regard_layout": (ctypes.c_char_p, []),
    "regard_last_error": (ctypes.c_char_p, []),
    "regard_best_level": (_int, []),
    "regard_level": (_int, []),
    "regard_packed_size": (_int64, [_int64, _int64]),
    "regard_sgemm_support": (_int, []),
}
"""Functions that return a value."""

_KERNELS: dict[str, list[Any]] = {
    "regard_fail": [_int],
    "regard_set_level": [_int],
    "regard_pack": [_pointer, _int64, _int64, _pointer, _pointer],
    "regard_select_outputs": [_ref(LinearPointers), _pointer, _int64, _pointer, _pointer, _pointer, _pointer],
    "regard_shortlist_linear": [_ref(LinearPointers), _pointer, _pointer, _int64, _int64, _int64, _int64, _pointer],
    "regard_linear": [_ref(LinearPointers), _pointer, _int64, _int64, _pointer],
    "regard_int8_matmul": [_ref(Int8Matmul), _int64],
    "regard_sgemm": [_ref(Sgemm), _int64],
    "regard_embed": [_pointer, _pointer, _pointer, _pointer, _int64, _int64, _float, _pointer],
    "regard_encode": [_ref(Stack), _pointer, _pointer, _int64, _int64],
    "regard_step": [_ref(Stack), _ref(DecoderState), _int64, _int64, _int64, _pointer],
    "regard_attention": [_ref(Attention), _int64],
    "regard_attention_backward": [_ref(Attention), _ref(AttentionGradients), _int64],
    "regard_add_norm": [_ref(AddNorm), _int64, _pointer],
    "regard_add_norm_backward": [_ref(AddNorm), _ref(AddNormGradients), _int64],
    "regard_sampled_loss": [_ref(SampledLoss), _int64],
    "regard_nll": [_pointer, _pointer, _int64, _int64, _float, _int64, _pointer],
    "regard_subword_dropout": [_ref(SubwordDropout), _pointer, _int64, _int64, _pointer, _pointer],
    "regard_log_softmax": [_pointer, _int64, _int64, _int64],
    "regard_top_k": [_pointer, _pointer, _int64, _int64, _int64, _int64, _int64, _pointer, _pointer],
}
"""Functions that return 0 or an error code."""


class KernelStatus(NamedTuple):
    """Which kernels are used, or why there are none."""

    level: str | None
    """"avx2", "vnni", or None without kernels."""
    reason: str = ""
    """Why there are none."""
    advice: str = ""
    """What to do about it, if anything."""


def kernel_status() -> KernelStatus:
    """Return which kernels are used, or why there are none.

    It raises a `ConfigError` where REGARD_KERNELS asks for what there is not.
    """
    return _load()[1]


@cache
def kernels() -> ctypes.CDLL | None:
    """Return the kernels, or None without any: `kernel_status` says why."""
    return _load()[0]


def library() -> ctypes.CDLL:
    """Return the kernels, where `can_compute` has said that there are any."""
    found = kernels()
    assert found is not None, "`can_compute` says whether there are kernels"
    return found


@cache
def _load() -> tuple[ctypes.CDLL | None, KernelStatus]:
    requested = os.environ.get("REGARD_KERNELS", "")
    if requested not in ("", "off", *_LEVELS):
        raise ConfigError(f"REGARD_KERNELS is {requested!r}; it must be off, avx2 or vnni, or not be set")
    if requested == "off":
        return None, KernelStatus(None, "REGARD_KERNELS is off", "Unset REGARD_KERNELS to use them.")
    try:
        library = _checked_library()
        level = requested or _best_level(library)
    except _UnusableError as error:
        if requested:
            raise ConfigError(f"REGARD_KERNELS is {requested}, but there are no kernels: {error}") from None
        return None, KernelStatus(None, str(error), error.advice)
    if _LEVELS[level] > library.regard_best_level():
        raise ConfigError(f"REGARD_KERNELS is {level}, but this processor does not have {_INSTRUCTIONS[level]}")
    library.regard_set_level(_LEVELS[level])
    return library, KernelStatus(level)


class _UnusableError(Exception):
    """Why a library cannot be used, and what to do about it, if anything."""

    def __init__(self, reason: str, advice: str = _BUILD) -> None:
        super().__init__(reason)
        self.advice = advice


def _checked_library() -> ctypes.CDLL:
    if not LIBRARY.exists():
        if platform.machine() != "x86_64" or sys.platform == "win32":  # `hatch_build.py` builds none there
            raise _UnusableError(f"there are none for {platform.machine()} on {sys.platform}", advice="")
        raise _UnusableError("they were not built when the package was installed")
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        raise _UnusableError(f"{LIBRARY} cannot be loaded: {error}") from None
    try:
        _declare(library)
    except AttributeError:
        raise _UnusableError(f"{LIBRARY} is of another version; install regard again") from None
    if library.regard_version() != _VERSION:  # which an older installation may have left
        raise _UnusableError(f"{LIBRARY} is of another version; install regard again")
    difference = _layout_difference(library.regard_layout().decode())
    if difference is not None:
        raise _UnusableError(f"{LIBRARY} does not fit this version: {difference}; install regard again")
    return library


def _best_level(library: ctypes.CDLL) -> str:
    best = library.regard_best_level()
    found = [name for name, level in _LEVELS.items() if level == best]
    if not found:
        raise _UnusableError(f"this processor does not have {_INSTRUCTIONS['avx2']}", advice="")
    return found[0]


def _declare(library: ctypes.CDLL) -> None:
    for name, (result, arguments) in _VALUES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    for name, arguments in _KERNELS.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = partial(_raise_error, name, library.regard_last_error)


def _raise_error(name: str, last_error: Callable[[], bytes], status: int) -> None:
    """Raise the error that a kernel returned."""
    if not status:
        return
    text = last_error().decode(errors="replace")
    if status == 1:
        raise OutOfMemoryError("there is not enough memory to compute so much at once")
    if status == 2:
        raise InputError(f"{name}: {text}")
    raise KernelError(f"{name} failed: {text}")


def layout() -> str:
    """Return the layout of the structs: a line for each, with its size, and name, offset and size of its fields."""
    lines = []
    for struct in STRUCTS:
        fields = ((name, getattr(struct, name)) for name, *_ in struct._fields_)
        described = (f"{name}:{field.offset}:{field.size}" for name, field in fields)
        lines.append(" ".join((struct.__name__, str(ctypes.sizeof(struct)), *described)))
    return "\n".join(lines) + "\n"


def _layout_difference(theirs: str) -> str | None:
    """Return the first difference between the structs here and those of a library."""
    found = {line.split()[0]: line.split()[1:] for line in theirs.splitlines()}
    for line in layout().splitlines():
        name, *ours = line.split()
        if name not in found:
            return f"it does not have the struct {name}"
        if ours != found[name]:
            here, there = (" ".join(some) for some in (ours, found[name]))
            return f"the struct {name} is laid out as {there} (size, then field:offset:size), not as {here}"
    return None
