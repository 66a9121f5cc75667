"""Kernels in C++, built when the package is installed where there is a compiler. Nothing but speed depends on them."""

import ctypes
from functools import cache
from pathlib import Path

LIBRARY = Path(__file__).with_name("kernels.so")

_SIZE, _POINTER, _INT = ctypes.c_int64, ctypes.c_void_p, ctypes.c_int
_VERSION = 4
_SIGNATURES = {
    "regard_version": (_INT, []),
    "regard_level": (_INT, []),
    "regard_packed_size": (_SIZE, [_SIZE, _SIZE]),
    "regard_pack": (None, [_POINTER, _SIZE, _SIZE, _POINTER, _POINTER]),
    "regard_choose": (None, [_POINTER, _POINTER, _SIZE, _POINTER, _POINTER, _POINTER, _POINTER]),
    "regard_chosen": (None, [_POINTER, _POINTER, _POINTER, _SIZE, _SIZE, _SIZE, _INT, _POINTER]),
    "regard_linear": (None, [_POINTER, _POINTER, _SIZE, _INT, _POINTER]),
    "regard_encode": (None, [_POINTER, _POINTER, _POINTER, _SIZE, _INT]),
    "regard_step": (None, [_POINTER, _POINTER, _SIZE, _SIZE, _INT, _POINTER]),
    "regard_log_softmax": (None, [_POINTER, _SIZE, _SIZE]),
    "regard_best": (None, [_POINTER, _POINTER, _SIZE, _SIZE, _SIZE, _SIZE, _POINTER, _POINTER]),
}


class Linear(ctypes.Structure):
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
