"""BPE-dropout by a kernel: the same cuts as in Python."""

import ctypes

import numpy as np

from regard.data.subword_dropout import Cut, MergeTable, Numbers, merge_logs
from regard.kernels.bindings import kernels, library


class _Cutting(ctypes.Structure):
    _fields_ = (
        ("M", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("pairs", "ranks", "whole", "letters", "letter_begins", "kinds")),
        *((name, ctypes.c_double) for name in ("log_of_leaving", "log_of_making")),
    )


def cut_by_kernel(table: MergeTable, rate: float, tokens: Numbers, start: int) -> list[int]:
    """Cut tokens again, by a kernel."""
    arrays = table.pairs, table.ranks, table.whole, table.letters, table.letter_begins, table.kinds
    cutting = _Cutting(len(table.pairs), *(array.ctypes.data for array in arrays), *merge_logs(rate))
    tokens = np.ascontiguousarray(tokens)
    out, count = np.empty(table.most_pieces(tokens), dtype=np.int64), ctypes.c_int64()
    library().regard_cut(
        ctypes.byref(cutting), tokens.ctypes.data, len(tokens), start, out.ctypes.data, ctypes.byref(count)
    )
    return out[: count.value].tolist()  # type: ignore[no-any-return]


def subword_cut() -> Cut | None:
    """Return the kernel that cuts tokens, or None where there is none."""
    return None if kernels() is None else cut_by_kernel
